// The list of operators: shows the rows that have every word of what is typed in, and the families that have such rows.
document.addEventListener("DOMContentLoaded", () => {
  const box = document.querySelector("#operator-filter");
  if (!box) {
    return;
  }
  const [input, found] = [box.querySelector("input"), box.querySelector("span")];
  const words = JSON.parse(box.dataset.words);
  const families = [...document.querySelectorAll("article section section")].map((section) => ({
    section,
    rows: [...section.querySelectorAll("tbody tr")].map((row) => ({
      row,
      text: `${row.textContent} ${words[row.querySelector("a").textContent] ?? ""}`.toLowerCase(),
    })),
  }));
  const filter = () => {
    const wanted = input.value.toLowerCase().split(/\s+/);
    let count = 0;
    for (const { section, rows } of families) {
      const shown = rows.filter(({ row, text }) => !(row.hidden = !wanted.every((word) => text.includes(word))));
      section.hidden = shown.length === 0;
      count += shown.length;
    }
    found.textContent = input.value ? (count === 1 ? "1 operator" : `${count} operators`) : "";
  };
  input.value = new URLSearchParams(location.search).get("filter") ?? "";
  input.addEventListener("input", filter);
  box.hidden = false;
  filter();
});
