// draws each Vega-Lite specification into its element, once that is shown: what is folded has no width
const data = document.getElementById("specs");
for (const chart of data ? JSON.parse(data.textContent) : []) {
  const details = document.getElementById(chart.id).closest("details");
  const draw = () => window.vegaEmbed("#" + chart.id, chart.spec, {actions: false, renderer: "svg", ast: true});
  if (!details || details.open) draw();
  else details.addEventListener("toggle", draw, {once: true});
}
