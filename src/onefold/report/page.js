"use strict";
// A click on a heading sorts the table: numbers by value, names alphabetically; a second click reverses the order.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const first = [...body.rows];
  heads.forEach((head, column) => {
    // The button overlays the heading and has no text itself: browsers do not repeat a button's text when printing.
    const button = document.createElement("button");
    button.type = "button";
    button.title = "sort by this column";
    button.setAttribute("aria-label", `sort by ${head.textContent}`);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === "") || first.indexOf(a) - first.indexOf(b);
        const by = column === 0 ? x.localeCompare(y) : Number(x) - Number(y);
        return (up ? by : -by) || first.indexOf(a) - first.indexOf(b);
      };
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      body.append(...[...body.rows].sort(order));
    });
  });
}
// A table that is wider than the page fades out where there is more of it, and its first column casts a shadow.
for (const wide of document.querySelectorAll(".wide")) {
  const look = () => {
    const [left, room] = [wide.scrollLeft, wide.scrollWidth - wide.clientWidth];
    wide.classList.toggle("cut", room > 1);
    wide.classList.toggle("more", left < room - 1);
    wide.classList.toggle("past", left > 1);
  };
  wide.addEventListener("scroll", look, { passive: true });
  const sizes = new ResizeObserver(look);
  [wide, wide.firstElementChild].forEach((each) => sizes.observe(each));
  look();
}
// Print collapsed parts, too.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
// Open a collapsed part when it is reached by a link from the contents.
const opened = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
};
addEventListener("hashchange", opened);
opened();
