// Heat maps of measured and modelled attention for one layer, and one row of both as lines.

// A perceptually even ramp from dark to light (viridis), safe for colour blindness.
const RAMP = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141],
  [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37],
];

function rampColour(share) {
  const place = Math.max(0, Math.min(1, share)) * (RAMP.length - 1);
  const k = Math.min(RAMP.length - 2, Math.floor(place));
  const part = place - k;
  return RAMP[k].map((c, i) => Math.round(c + (RAMP[k + 1][i] - c) * part));
}

// Opaque colours as the four bytes of a pixel.
const COLOURS = new Uint32Array(
  Uint8Array.from(
    Array.from({ length: 256 }, (_, k) => [...rampColour(k / 255), 255]).flat(),
  ).buffer,
);

// Rows of a lower triangle from 16-bit logarithms: the share of the attention of a block of
// queries that goes to a block of keys.
function decodeBlocks(code, size, { decades, steps }) {
  const bytes = Uint8Array.from(atob(code), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const rows = [];
  let offset = 0;
  for (let b = 0; b < size; b += 1) {
    const row = new Float64Array(b + 1);
    for (let c = 0; c <= b; c += 1) {
      const value = view.getUint16(offset, true);
      row[c] = value === 0 ? 0 : 10 ** (((value - 1) / steps) * decades - decades);
      offset += 2;
    }
    rows.push(row);
  }
  return rows;
}

class HeatMap {
  constructor({ edges, low, title, pick }) {
    Object.assign(this, { edges, low, title });
    this.canvas = element("canvas", { role: "img", width: 512, height: 512 });
    const n = edges[edges.length - 1];
    // The block of each pixel along an axis.
    this.blocks = Uint16Array.from({ length: 512 }, (_, pixel) => binAt(edges, (pixel / 512) * n));
    this.tip = element("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.heading = element("h4", {}, title);
    this.root = element("div", { class: "heat" }, this.heading, element("div", { class: "plot" }, this.canvas, this.tip));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
    });
    this.canvas.addEventListener("click", (event) => pick(this.blockAt(event)[0]));
  }

  update({ rows, query, title, description }) {
    Object.assign(this, { rows, query });
    this.heading.textContent = title;
    this.canvas.setAttribute("aria-label", description);
    this.paint();
  }

  paint() {
    const brush = this.canvas.getContext("2d");
    const side = this.canvas.width;
    const n = this.edges[this.edges.length - 1];
    const place = (j) => Math.round((j / n) * side);
    const depth = Math.log10(this.low);
    const image = brush.createImageData(side, side);
    const levels = this.rows.map((row) =>
      Uint8Array.from(row, (mass, c) => {
        const weight = mass / (this.edges[c + 1] - this.edges[c]);
        const share = weight > 0 ? 1 - Math.log10(weight) / depth : 0;
        return Math.round(255 * Math.max(0, Math.min(1, share)));
      }),
    );
    const pixels = new Uint32Array(image.data.buffer);
    for (let y = 0, at = 0; y < side; y += 1) {
      const row = levels[this.blocks[y]];
      for (let x = 0; x < side; x += 1, at += 1) {
        const c = this.blocks[x];
        if (c < row.length) pixels[at] = COLOURS[row[c]];
      }
    }
    brush.putImageData(image, 0, 0);
    const top = place(this.edges[this.query]);
    const height = Math.max(4, place(this.edges[this.query + 1]) - top);
    brush.strokeStyle = "#ff5a36";
    brush.lineWidth = 2;
    brush.strokeRect(1, Math.min(top, side - height) - 1, side - 2, height + 1);
  }

  blockAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const n = this.edges[this.edges.length - 1];
    const position = (value, start, size) =>
      binAt(this.edges, Math.max(0, Math.min(n - 1, ((value - start) / size) * n)));
    return [position(event.clientY, box.top, box.height), position(event.clientX, box.left, box.width)];
  }

  hover(event) {
    const [b, c] = this.blockAt(event);
    this.tip.hidden = c > b;
    if (c > b) return;
    const mass = this.rows[b][c];
    const weight = mass / (this.edges[c + 1] - this.edges[c]);
    const lines = [
      ["share of their attention", showPercent(mass)],
      ["mean weight of a pair", show(weight)],
    ];
    this.tip.replaceChildren(
      element("p", {}, `queries ${showBin(this.edges, b)}, keys ${showBin(this.edges, c)}`),
      element("ul", {}, ...lines.map(([name, value]) => element("li", {}, element("span", {}, name), element("b", {}, value)))),
    );
    const right = c < this.edges.length / 2;
    this.tip.style.left = right ? "auto" : "4px";
    this.tip.style.right = right ? "4px" : "auto";
  }
}

function rampLegend(low) {
  const stops = RAMP.map((_, k) => `rgb(${rampColour(k / (RAMP.length - 1)).join(",")})`).join(",");
  const bar = element("span", { class: "ramp", "aria-hidden": "true" });
  bar.style.background = `linear-gradient(to right, ${stops})`;
  return element("p", { class: "note legend" }, `mean weight: ${show(low)} or less `, bar, " 1");
}

const MODELS = {
  "position+content": "mask, position bias and content",
  position: "mask and position bias",
  lag: "mask and mean logit by lag",
};

function kernelSeries(state, decode) {
  const widths = state.edges.slice(0, -1).map((edge, i) => state.edges[i + 1] - edge);
  const shifted = state.edges.map((edge) => edge - 0.5);
  return ["measured", state.model].map((kind) => {
    const row = decode(kind, state.layer)[state.query];
    return {
      key: kind,
      name: kind === "measured" ? "measured" : MODELS[kind],
      look: kind === "measured" ? "measured" : "residual-content",
      x: centres(shifted).slice(0, row.length),
      edges: shifted.slice(0, row.length + 1),
      isStepped: hasWideBins(state.edges),
      values: Array.from(row, (mass, c) => mass / widths[c]),
    };
  });
}

function mountKernels(mount, kernels) {
  const { edges, layers } = kernels;
  const size = edges.length - 1;
  const n = edges[size];
  const depth = layers.measured.length;
  const low = 10 ** Math.floor(Math.log10(0.05 / n));
  const state = { edges, layer: 0, query: size - 1, model: "position+content" };
  const cache = new Map();
  const decode = (kind, layer) => {
    const k = layers[kind][layer];
    if (!cache.has(k)) cache.set(k, decodeBlocks(kernels.codes[k], size, kernels));
    return cache.get(k);
  };
  const pick = (query) => {
    querySlider.set(query);
    state.query = query;
    refresh();
  };
  const maps = ["measured", "model"].map((title) => new HeatMap({ edges, low, title, pick }));
  const row = new LineChart({
    description: "Attention of the chosen queries",
    xLabel: "key position",
    yLabel: "mean weight",
    xDomain: [-0.8, n - 0.2],
    yDomain: [low, 1.2],
    isLog: true,
    height: 240,
    cursor: {
      x: centres(edges).map((x) => x - 0.5),
      label: "Key",
      name: "key",
      words: (i) => `keys ${showBin(edges, i)}`,
    },
    value: (s, i) => (i < s.values.length ? show(s.values[i]) : "not visible"),
  });
  row.indexOf = (series, i) => (i < series.values.length ? i : series.values.length);
  const refresh = () => {
    const kinds = ["measured", state.model];
    kinds.forEach((kind, k) => {
      const rows = decode(kind, state.layer);
      const title = k ? "Model" : "Measured";
      const last = rows[size - 1];
      maps[k].update({
        rows,
        query: state.query,
        title,
        description:
          `${title}, layer ${state.layer + 1}: the last queries give ` +
          `${showPercent(last[0])} of their attention to position ${showBin(edges, 0)} and ` +
          `${showPercent(last[size - 1])} to position ${showBin(edges, size - 1)}.`,
      });
    });
    row.update(kernelSeries(state, decode));
  };
  const layerSlider = slider({
    label: "Layer",
    min: 1,
    max: depth,
    value: 1,
    name: "kernel layer",
    words: (t) => `${t} of ${depth}`,
    changed: (t) => {
      state.layer = t - 1;
      refresh();
    },
  });
  const querySlider = slider({
    label: "Query",
    max: size - 1,
    value: state.query,
    name: "query",
    words: (b) => showBin(edges, b),
    changed: (b) => {
      state.query = b;
      refresh();
    },
  });
  const blocks =
    size < n
      ? `Each cell is the mean over a block of about ${Math.round(n / size)} queries and as many keys; the blocks of a row hold all of its attention. `
      : "";
  mount.append(
    element(
      "div",
      { class: "controls" },
      layerSlider,
      radios("Model of", Object.entries(MODELS).filter(([kind]) => kind in layers), state.model, (value) => {
        state.model = value;
        refresh();
      }),
    ),
    element("div", { class: "maps" }, ...maps.map((map) => map.root)),
    rampLegend(low),
    element("p", { class: "note" }, `${blocks}Queries run down, keys to the right; choose a row with a click or the slider.`),
    querySlider,
    row.root,
  );
  refresh();
}
