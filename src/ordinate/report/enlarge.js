// opens a heatmap on a click; values are recovered from the colours of the image, up to one step of the palette
const [dialog, canvas, value] = ["large", "large-canvas", "large-value"].map((id) => document.getElementById(id));
// names of rows and columns by the name of their axis, if the page has them
const labels = JSON.parse(document.getElementById("labels")?.textContent ?? "{}");
const place = {row: 0, column: 0};
let shown = null;
function colours(figure) {
  const image = figure.querySelector(".ramp img"),
    sheet = document.createElement("canvas");
  sheet.width = image.naturalWidth;
  sheet.height = 1;
  const pen = sheet.getContext("2d");
  pen.drawImage(image, 0, 0);
  const pixels = pen.getImageData(0, 0, sheet.width, 1).data,
    found = new Map();
  for (let step = 0; step < sheet.width; step++)
    found.set(pixels.slice(4 * step, 4 * step + 3).join(), step / (sheet.width - 1));
  return found;
}
// the rows or columns of the matrix that a pixel covers
function rangeOf(axis, pixel, size, whole) {
  const first = Number(shown.data.first),
    edge = (step) => Math.round((step * whole) / size) + first;
  const [from, to] = [edge(pixel), edge(pixel + 1) - 1];
  const name = labels[axis]?.[from];
  return from !== to ? `${from} to ${to}` : name === undefined ? `${from}` : `${from} “${name}”`;
}
function showValue() {
  const pixel = shown.pen.getImageData(place.column, place.row, 1, 1).data.slice(0, 3).join();
  const share = shown.colours.get(pixel),
    {x, y, low, high, rows, columns} = shown.data;
  const number = share === undefined ? "" : (Number(low) + share * (Number(high) - Number(low))).toPrecision(3);
  value.textContent = `${y} ${rangeOf(y, place.row, canvas.height, rows)}, ${x} ${rangeOf(x, place.column, canvas.width, columns)}: about ${number}`;
}
function open(button) {
  const image = button.querySelector("img"),
    data = button.dataset;
  canvas.width = image.naturalWidth;
  canvas.height = image.naturalHeight;
  const pen = canvas.getContext("2d", {willReadFrequently: true});
  pen.drawImage(image, 0, 0);
  shown = {pen, data, colours: colours(button.closest("figure"))};
  Object.assign(place, {row: 0, column: 0});
  document.getElementById("large-name").textContent = data.name;
  document.getElementById("large-note").textContent = `Rows: ${data.y}. Columns: ${data.x}. ${data.note}`;
  dialog.showModal();
  canvas.focus();
  showValue();
}
function clamp(number, size) {
  return Math.min(size - 1, Math.max(0, number));
}
for (const button of document.querySelectorAll("button.panel")) button.addEventListener("click", () => open(button));
document.getElementById("large-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});
canvas.addEventListener("pointermove", (event) => {
  const box = canvas.getBoundingClientRect(),
    side = Math.min(box.width / canvas.width, box.height / canvas.height);
  const left = (box.width - side * canvas.width) / 2,
    top = (box.height - side * canvas.height) / 2;
  place.column = clamp(Math.floor((event.clientX - box.left - left) / side), canvas.width);
  place.row = clamp(Math.floor((event.clientY - box.top - top) / side), canvas.height);
  showValue();
});
canvas.addEventListener("keydown", (event) => {
  const [down, right] = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key] ?? [
    0, 0,
  ];
  if (!down && !right) return;
  event.preventDefault();
  place.row = clamp(place.row + down, canvas.height);
  place.column = clamp(place.column + right, canvas.width);
  showValue();
});
