// sorts a table by a click on a heading, and filters its rows by name
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0],
    rows = [...body.rows];
  const value = (row, place) => {
    const text = row.cells[place].textContent.trim();
    const number = parseFloat(text.replace(/[,+\s%]/g, ""));
    return Number.isNaN(number) ? text : number;
  };
  table.querySelectorAll("thead th").forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const keys = new Map(rows.map((row) => [row, value(row, place)]));
      const compare = (one, other) => {
        const [a, b] = [keys.get(one), keys.get(other)];
        if (a === "" || b === "") return (a === "") - (b === "");
        const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
        return falling ? -order : order;
      };
      body.append(...[...rows].sort(compare));
    });
  });
  const filter = document.getElementById("filter");
  filter.closest("label").hidden = rows.length < 6;
  filter.addEventListener("input", () => {
    const wanted = filter.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.dataset.name.toLowerCase().includes(wanted);
  });
}
