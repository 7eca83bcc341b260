// Toggles, radio groups, sliders and tables of the numbers behind a figure: native elements, so
// that keyboard and screen readers work as everywhere.

function lineSwatch(look) {
  return shape(
    "svg",
    { class: `swatch ${look}`, viewBox: "0 0 26 10", width: 26, height: 10, "aria-hidden": "true" },
    shape("line", { x1: 1, x2: 25, y1: 5, y2: 5, class: "line" }),
  );
}

// Checkboxes that show and hide series; at least one stays on.
function toggles(title, items, changed) {
  const boxes = items.map((item) => {
    const box = element("input", { type: "checkbox", checked: item.on, "data-series": item.key });
    box.checked = item.on;
    return box;
  });
  const update = (box) => {
    if (!boxes.some((other) => other.checked)) box.checked = true;
    changed(new Set(items.filter((_, i) => boxes[i].checked).map((item) => item.key)));
  };
  boxes.forEach((box) => box.addEventListener("change", () => update(box)));
  return element(
    "fieldset",
    { class: "toggles" },
    element("legend", {}, title),
    ...items.map((item, i) => element("label", {}, boxes[i], lineSwatch(item.look), item.name)),
  );
}

function radios(title, options, chosen, changed) {
  const name = uniqueId("radio");
  return element(
    "fieldset",
    { class: "radios" },
    element("legend", {}, title),
    ...options.map(([value, text]) => {
      const input = element("input", { type: "radio", name, value });
      input.checked = value === chosen;
      input.addEventListener("change", () => changed(value));
      return element("label", {}, input, text);
    }),
  );
}

// A slider with its value in words beside it.
function slider({ label, max, value, words, changed, min = 0, name }) {
  const output = element("output", {});
  const input = element("input", { type: "range", min, max, step: 1, "data-slider": name });
  const label_ = element("span", { class: "slider-label", id: uniqueId("slider") }, label);
  input.setAttribute("aria-labelledby", label_.id);
  const refresh = () => {
    const text = words(Number(input.value));
    output.textContent = text;
    input.setAttribute("aria-valuetext", text);
  };
  input.value = value;
  input.addEventListener("input", () => {
    refresh();
    changed(Number(input.value));
  });
  refresh();
  const row = element("div", { class: "slider" }, label_, input, output);
  row.set = (next) => {
    input.value = next;
    refresh();
  };
  row.refresh = refresh;
  return row;
}

// A table that is built when it is first opened.
function numbersBehind(title, head, rows) {
  const details = element("details", { class: "numbers" }, element("summary", {}, title));
  const build = () => {
    if (details.querySelector("table")) return;
    const cells = (values) =>
      values.map((value, i) =>
        element(i ? "td" : "th", i ? { class: "num" } : { scope: "row" }, value),
      );
    const table = element(
      "table",
      {},
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          ...head.map((text, i) => element("th", { scope: "col", class: i ? "num" : null }, text)),
        ),
      ),
      element("tbody", {}, ...rows().map((values) => element("tr", {}, ...cells(values)))),
    );
    details.append(
      element("div", { class: "scroll tall", role: "group", tabindex: 0, "aria-label": title }, table),
    );
  };
  details.addEventListener("toggle", () => {
    if (details.open) build();
  });
  return details;
}
