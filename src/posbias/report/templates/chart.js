// A line chart: log or linear, lines or steps, a band, bars, a cursor for mouse and keyboard.

const MARGIN = { top: 26, right: 14, bottom: 40, left: 52 };

function niceTicks(low, high, most) {
  const raw = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((s) => s * power >= raw * (1 - 1e-9));
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) {
    ticks.push(Number((k * step).toPrecision(12)));
  }
  return ticks;
}

function logTicks(low, high, most) {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const decades = Math.log10(high / low);
  const factors = decades < 2.2 ? [1, 2, 5] : [1];
  const stride = Math.max(1, Math.ceil((last - first + 1) / most));
  const ticks = [];
  for (let k = first - 1; k <= last; k += 1) {
    for (const factor of factors) {
      const value = factor * 10 ** k;
      if (value >= low * 0.999 && value <= high * 1.001 && (k - first) % stride === 0) ticks.push(value);
    }
  }
  return ticks;
}

// series: {key, name, look, x: centres, values, edges?: bin edges in x units, isStepped?, band?,
//          bars?, dots?}
// options: {label, description, xLabel, yLabel, xDomain, yDomain, isLog, height, xTicks?, mark?,
//           cursor: {x: [...], label, words(i), name}, value(series, i)}
class LineChart {
  constructor(options) {
    this.options = options;
    this.series = [];
    this.at = null;
    this.plot = element("div", { class: "plot" });
    this.tip = element("div", { class: "tip", "aria-hidden": "true", hidden: true });
    const last = options.cursor.x.length - 1;
    this.slider = slider({
      label: options.cursor.label,
      max: last,
      value: options.cursor.start ?? last,
      name: options.cursor.name,
      words: (i) => this.words(i),
      changed: (i) => this.point(i),
    });
    this.slider.classList.add("cursor");
    const range = this.slider.querySelector("input");
    range.addEventListener("focus", () => this.point(Number(range.value)));
    range.addEventListener("blur", () => this.point(null));
    this.root = element("div", { class: "line-chart" }, this.plot, this.slider);
    this.plot.addEventListener("pointermove", (event) => this.follow(event));
    this.plot.addEventListener("pointerdown", (event) => this.follow(event));
    this.plot.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch") this.point(null);
    });
    new ResizeObserver(() => this.draw()).observe(this.plot);
    // Paper has its own width, whatever the window's is.
    window.addEventListener("beforeprint", () => this.draw(this.root.closest(".ends") ? 330 : 690));
    window.addEventListener("afterprint", () => this.draw());
  }

  update(series, changes = {}) {
    Object.assign(this.options, changes);
    this.series = series;
    this.slider.refresh();
    this.draw();
  }

  indexOf(series, i) {
    const x = this.options.cursor.x[i];
    return series.edges ? binAt(series.edges, x) : Math.min(i, series.values.length - 1);
  }

  words(i) {
    const { cursor, value } = this.options;
    const parts = this.series.map((s) => `${s.name} ${value(s, this.indexOf(s, i))}`);
    return parts.length ? `${cursor.words(i)}: ${parts.join(", ")}` : cursor.words(i);
  }

  scales() {
    const { xDomain, yDomain, isLog } = this.options;
    const left = MARGIN.left;
    const right = this.width - MARGIN.right;
    const top = MARGIN.top;
    const bottom = this.height - MARGIN.bottom;
    const [a, b] = xDomain;
    const [c, d] = isLog ? yDomain.map(Math.log10) : yDomain;
    const x = (value) => left + ((value - a) / (b - a || 1)) * (right - left);
    const y = (value) => {
      const v = isLog ? (value > 0 ? Math.log10(value) : c - 9) : value;
      return Math.max(-4000, Math.min(9000, bottom - ((v - c) / (d - c || 1)) * (bottom - top)));
    };
    return { x, y, left, right, top, bottom };
  }

  draw(given) {
    const width = given || Math.floor(this.plot.clientWidth);
    if (width < 40 || !this.series.length) return;
    this.width = width;
    this.height = this.options.height || (width < 480 ? 250 : 310);
    const scale = this.scales();
    this.scale = scale;
    const clip = uniqueId("clip");
    const frame = {
      x: scale.left,
      y: scale.top - 4,
      width: scale.right - scale.left,
      height: scale.bottom - scale.top + 8,
    };
    this.cursorLayer = shape("g", { class: "cursor-marks" });
    const picture = shape(
      "svg",
      {
        viewBox: `0 0 ${width} ${this.height}`,
        role: "img",
        "aria-label": this.options.description,
      },
      shape("clipPath", { id: clip }, shape("rect", frame)),
      this.axes(scale),
      shape("g", { "clip-path": `url(#${clip})` }, ...this.series.map((s) => this.line(s, scale))),
      this.cursorLayer,
    );
    this.plot.replaceChildren(picture, this.tip);
    this.mark();
  }

  axes({ x, y, left, right, top, bottom }) {
    const { xDomain, yDomain, isLog, xLabel, yLabel, xTicks } = this.options;
    const group = shape("g", { class: "axes" });
    const most = Math.max(2, Math.floor((bottom - top) / 44));
    for (const tick of isLog ? logTicks(...yDomain, most) : niceTicks(...yDomain, most)) {
      group.append(
        shape("line", { class: tick === this.options.mark ? "grid marked" : "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }),
        shape("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, show(tick)),
      );
    }
    const across = Math.max(2, Math.floor((right - left) / 66));
    for (const tick of xTicks ? xTicks(across) : niceTicks(...xDomain, across)) {
      if (tick < xDomain[0] || tick > xDomain[1]) continue;
      group.append(
        shape("line", { class: "tick", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 5 }),
        shape("text", { x: x(tick), y: bottom + 18, "text-anchor": "middle" }, tick.toLocaleString("en")),
      );
    }
    group.append(
      shape("line", { class: "base", x1: left, x2: right, y1: bottom, y2: bottom }),
      shape("text", { class: "axis-label", x: right, y: bottom + 35, "text-anchor": "end" }, xLabel),
      shape("text", { class: "axis-label", x: 2, y: 13 }, yLabel),
    );
    return group;
  }

  line(series, { x, y }) {
    const group = shape("g", { class: `series ${series.look}` });
    const trace = (values) => {
      if (!series.isStepped) return values.map((v, i) => `${x(series.x[i]).toFixed(2)},${y(v).toFixed(2)}`);
      return values.flatMap((v, i) => [
        `${x(series.edges[i]).toFixed(2)},${y(v).toFixed(2)}`,
        `${x(series.edges[i + 1]).toFixed(2)},${y(v).toFixed(2)}`,
      ]);
    };
    if (series.band) {
      const outline = [...trace(series.band.high), ...trace(series.band.low).reverse()];
      group.append(shape("polygon", { class: "band", points: outline.join(" ") }));
    }
    if (series.bars) {
      series.bars.low.forEach((low, i) => {
        const place = { x1: x(series.x[i]), x2: x(series.x[i]), y1: y(low), y2: y(series.bars.high[i]) };
        group.append(shape("line", { class: "bar", ...place }));
      });
    }
    group.append(shape("polyline", { class: "line", points: trace(series.values).join(" ") }));
    if (series.dots) {
      series.values.forEach((v, i) => {
        group.append(shape("circle", { class: "dot", cx: x(series.x[i]), cy: y(v), r: 3 }));
      });
    }
    return group;
  }

  follow(event) {
    if (!this.scale) return;
    const box = this.plot.getBoundingClientRect();
    const { left, right } = this.scale;
    const [a, b] = this.options.xDomain;
    const ratio = ((event.clientX - box.left) * (this.width / box.width) - left) / (right - left);
    const wanted = a + Math.max(0, Math.min(1, ratio)) * (b - a);
    const places = this.options.cursor.x;
    let best = 0;
    places.forEach((place, i) => {
      if (Math.abs(place - wanted) < Math.abs(places[best] - wanted)) best = i;
    });
    this.slider.set(best);
    this.point(best);
  }

  point(i) {
    this.at = i;
    this.mark();
  }

  mark() {
    if (!this.cursorLayer) return;
    this.cursorLayer.replaceChildren();
    this.tip.hidden = this.at === null;
    if (this.at === null) return;
    const { x, y, top, bottom } = this.scale;
    const { cursor, value } = this.options;
    const place = x(cursor.x[this.at]);
    this.cursorLayer.append(shape("line", { class: "hair", x1: place, x2: place, y1: top, y2: bottom }));
    const lines = this.series.map((s) => {
      const i = this.indexOf(s, this.at);
      const height = y(s.values[i]);
      if (height >= top - 4 && height <= bottom + 4) {
        const dot = { class: `hit ${s.look}`, cx: place, cy: height, r: 4 };
        this.cursorLayer.append(shape("circle", dot));
      }
      return element("li", {}, lineSwatch(s.look), element("span", {}, s.name), element("b", {}, value(s, i)));
    });
    this.tip.replaceChildren(element("p", {}, cursor.words(this.at)), element("ul", {}, ...lines));
    const share = place / this.width;
    this.tip.style.left = share < 0.5 ? `${100 * share + 1.5}%` : "auto";
    this.tip.style.right = share < 0.5 ? "auto" : `${100 * (1 - share) + 1.5}%`;
  }
}
