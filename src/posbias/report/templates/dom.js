// Elements, numbers and small helpers.

window.addEventListener("error", (event) => {
  document.documentElement.dataset.error = event.message;
});

const SVG = "http://www.w3.org/2000/svg";
let lastId = 0;

function uniqueId(stem) {
  lastId += 1;
  return `${stem}-${lastId}`;
}

function addTo(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

function element(tag, attributes, ...children) {
  return addTo(document.createElement(tag), attributes, children);
}

function shape(tag, attributes, ...children) {
  return addTo(document.createElementNS(SVG, tag), attributes, children);
}

// Three significant digits, a real minus, thousands separated.
function show(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) {
    const [factor, power] = value.toExponential(digits - 1).split("e");
    const exponent = [...String(Number(power))].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
    const short = String(Number(factor)).replace("-", "−");
    return `${short === "1" ? "" : `${short} × `}10${exponent.join("")}`;
  }
  const rounded = Number(value.toPrecision(digits));
  return rounded.toLocaleString("en", { maximumFractionDigits: 8 }).replace("-", "−");
}

function showPercent(share) {
  return `${show(100 * share)} %`;
}

// "12" or "12 to 15" for the positions edges[i] .. edges[i + 1] - 1.
function showBin(edges, i) {
  const first = edges[i];
  const last = edges[i + 1] - 1;
  const text = (j) => j.toLocaleString("en");
  return first === last ? text(first) : `${text(first)} to ${text(last)}`;
}

// The bin of sorted edges that holds x.
function binAt(edges, x) {
  let low = 0;
  let high = edges.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (edges[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

function centres(edges) {
  return edges.slice(0, -1).map((edge, i) => (edge + edges[i + 1]) / 2);
}

function readData() {
  return JSON.parse(document.getElementById("report-data").textContent);
}
