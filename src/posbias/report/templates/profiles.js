// Influence against position: toggles, scale, both ends enlarged.

const VARIANT_LOOKS = {
  measured: "measured",
  "attention-only": "attention-only",
  residual: "residual",
  "residual+content": "residual-content",
  "residual+lag": "residual-lag",
  "residual+measured": "residual-measured",
  "energy-rollout": "energy-rollout",
  "paper+mlp": "paper-mlp",
  paper: "paper",
  "fixed-half": "fixed-half",
  uniform: "uniform",
};
const HIDDEN_AT_FIRST = new Set(["fixed-half", "uniform"]);

function lookOf(name) {
  return VARIANT_LOOKS[name] || "measured-otherwise";
}

// Leading curves are shown whole down to a millionth of the fair share, the others to a
// hundredth: a curve that falls by hundreds of decades would flatten everything else.
function influenceDomain(curves, isLog) {
  let low = Infinity;
  let high = 0;
  for (const { values, leads } of curves) {
    for (const v of values) {
      if (v >= (leads ? 1e-6 : 1e-2)) low = Math.min(low, v);
      high = Math.max(high, v);
    }
  }
  if (!isLog) return [0, high * 1.05];
  return [Math.min(low, 1) / 1.4, Math.max(high, 1) * 1.4];
}

function showInfluence(times, n, width) {
  const per = width > 1 ? "per position" : "";
  return `${show(times)} × (${showPercent(times / n)}${per ? ` ${per}` : ""})`;
}

function hasWideBins(edges) {
  return edges[edges.length - 1] - edges[0] > edges.length - 1;
}

function profileSeries(panel, names, n) {
  const shifted = panel.edges.map((edge) => edge - 0.5);
  const isBinned = hasWideBins(panel.edges);
  return names.map((name) => ({
    key: name,
    name,
    look: lookOf(name),
    x: centres(panel.edges).map((x) => x - 0.5),
    edges: shifted,
    isStepped: isBinned,
    values: panel.series[name],
    band: name === "measured" ? panel.band : null,
    width: (i) => panel.edges[i + 1] - panel.edges[i],
    n,
  }));
}

function profileChart(panel, n, height) {
  const edges = panel.edges;
  return new LineChart({
    description: `Influence at ${panel.name}`,
    xLabel: "position",
    yLabel: `influence, × fair share · ${panel.name}`,
    xDomain: [edges[0] - 0.8, edges[edges.length - 1] - 0.2],
    yDomain: [0.1, 1],
    isLog: true,
    mark: 1,
    height,
    cursor: {
      x: centres(edges).map((x) => x - 0.5),
      label: "Position",
      name: `position ${panel.name}`,
      words: (i) => `position ${showBin(edges, i)}`,
    },
    value: (s, i) => {
      const text = showInfluence(s.values[i], n, s.width(i));
      if (!s.band) return text;
      return `${text}, interval ${show(s.band.low[i])} to ${show(s.band.high[i])}`;
    },
  });
}

function mountProfiles(mount, { n, panels }) {
  const names = Object.keys(panels[0].series);
  let shown = new Set(names.filter((name) => !HIDDEN_AT_FIRST.has(name)));
  let isLog = true;
  const charts = panels.map((panel, k) => profileChart(panel, n, k ? 240 : null));
  const refresh = () => {
    const visible = names.filter((name) => shown.has(name));
    const curvesOf = (panel) =>
      visible.map((name) => ({ values: panel.series[name], leads: name === names[0] }));
    const shared = influenceDomain(panels.flatMap(curvesOf), true);
    charts.forEach((chart, k) => {
      // On a linear axis the peak of one end would flatten the other.
      const yDomain = isLog ? shared : influenceDomain(curvesOf(panels[k]), false);
      chart.update(profileSeries(panels[k], visible, n), { yDomain, isLog });
    });
  };
  const items = names.map((key) => ({ key, name: key, look: lookOf(key), on: shown.has(key) }));
  const ends = charts.slice(1).map((chart) => chart.root);
  const binned = panels[0].edges.length - 1 < n;
  const note = binned
    ? `Each step of the upper figure is the mean over ${Math.floor(n / (panels[0].edges.length - 1))} or more positions, so that every step keeps its mass. `
    : "";
  mount.append(
    element(
      "div",
      { class: "controls" },
      toggles("Profiles", items, (set) => {
        shown = set;
        refresh();
      }),
      radios("Scale", [["log", "logarithmic"], ["linear", "linear"]], "log", (value) => {
        isLog = value === "log";
        refresh();
      }),
    ),
    charts[0].root,
    ends.length ? element("div", { class: "ends" }, ...ends) : null,
    note ? element("p", { class: "note" }, note) : "",
    numbersBehind("Numbers behind this figure", ["position", ...names], () =>
      panels[0].edges.slice(0, -1).map((_, i) => [
        showBin(panels[0].edges, i),
        ...names.map((name) => show(panels[0].series[name][i])),
      ]),
    ),
  );
  refresh();
}

// Several measurements on positions relative to their lengths.
function mountRelativeProfiles(mount, { kinds, measurements }) {
  let kind = kinds[0];
  let isLog = true;
  const all = measurements.map((m, k) => String(k));
  let shown = new Set(all);
  const relative = (m) => m.edges.map((edge) => (edge - 0.5) / (m.n - 1));
  const cursor = Array.from({ length: 201 }, (_, i) => i / 200);
  const chart = new LineChart({
    description: mount.dataset.description,
    xLabel: "position / (length − 1)",
    yLabel: "influence, × fair share",
    xDomain: [-0.01, 1.01],
    yDomain: [0.1, 1],
    isLog: true,
    mark: 1,
    cursor: {
      x: cursor,
      label: "Relative position",
      name: "relative position",
      words: (i) => `relative position ${show(cursor[i])}`,
    },
    value: (s, i) => `${show(s.values[i])} ×`,
  });
  const series = () =>
    measurements
      .map((m, k) => ({
        key: String(k),
        name: m.label,
        look: `m${k % 8}`,
        edges: relative(m),
        isStepped: hasWideBins(m.edges),
        x: centres(relative(m)),
        values: m.series[kind],
      }))
      .filter((s) => shown.has(s.key) && s.values);
  const refresh = () => {
    const visible = series();
    const curves = visible.map(({ values }) => ({ values, leads: kind === kinds[0] }));
    chart.update(visible, { yDomain: influenceDomain(curves, isLog), isLog });
  };
  const items = measurements.map((m, k) => ({ key: String(k), name: m.label, look: `m${k % 8}`, on: true }));
  mount.append(
    element(
      "div",
      { class: "controls" },
      toggles("Measurements", items, (set) => {
        shown = set;
        refresh();
      }),
      radios("Profile", kinds.map((name) => [name, name]), kind, (value) => {
        kind = value;
        refresh();
      }),
      radios("Scale", [["log", "logarithmic"], ["linear", "linear"]], "log", (value) => {
        isLog = value === "log";
        refresh();
      }),
    ),
    chart.root,
  );
  refresh();
}
