// The mixing coefficients, and the profile of the last position after 0..T layers.

function layerTicks(depth) {
  return (most) => niceTicks(0, depth, most).filter((t) => Number.isInteger(t) && t >= 1);
}

function mountMixing(mount, mixing) {
  const depth = mixing.norm.length;
  const layers = mixing.norm.map((_, t) => t + 1);
  const high = Math.max(0.55, ...mixing.norm.map((v, t) => v + mixing.std[t]), ...mixing.frobenius);
  const chart = new LineChart({
    description: mount.dataset.description,
    xLabel: "layer",
    yLabel: "mixing coefficient λ",
    xDomain: [0.5, depth + 0.5],
    yDomain: [0, Math.min(1, high * 1.04)],
    isLog: false,
    height: 230,
    xTicks: layerTicks(depth),
    cursor: { x: layers, label: "Layer", name: "mixing layer", start: 0, words: (i) => `layer ${i + 1} of ${depth}` },
    value: (s, i) => (s.bars ? `${show(s.values[i])} ± ${show(mixing.std[i], 2)}` : show(s.values[i])),
  });
  const bars = {
    low: mixing.norm.map((v, t) => v - mixing.std[t]),
    high: mixing.norm.map((v, t) => v + mixing.std[t]),
  };
  const all = [
    { key: "half", name: "1/2", look: "uniform", x: [0.5, depth + 0.5], values: [0.5, 0.5] },
    { key: "frobenius", name: "Frobenius", look: "residual", x: layers, values: mixing.frobenius, dots: depth <= 40 },
    { key: "norm", name: "norm", look: "measured", x: layers, values: mixing.norm, bars, dots: depth <= 40 },
  ];
  const at = (s, i) => (s.key === "half" ? 0 : i);
  chart.indexOf = at;
  let shown = new Set(["half", "norm"]);
  const refresh = () => chart.update(all.filter((s) => shown.has(s.key)));
  const items = all.slice(1).reverse().map((s) => ({ key: s.key, name: `by ${s.name} estimator`, look: s.look, on: shown.has(s.key) }));
  mount.append(
    element(
      "div",
      { class: "controls" },
      toggles("Estimators", items, (set) => {
        shown = new Set([...set, "half"]);
        refresh();
      }),
    ),
    chart.root,
  );
  refresh();
}

// Several measurements, layers taken relative to the depth.
function mountRelativeMixing(mount, { measurements }) {
  const cursor = Array.from({ length: 101 }, (_, i) => i / 100);
  const high = Math.max(0.55, ...measurements.flatMap((m) => m.mixing));
  const chart = new LineChart({
    description: mount.dataset.description,
    xLabel: "relative depth",
    yLabel: "mixing coefficient λ",
    xDomain: [-0.01, 1.01],
    yDomain: [0, Math.min(1, high * 1.04)],
    isLog: false,
    height: 250,
    cursor: {
      x: cursor,
      label: "Relative depth",
      name: "relative depth",
      start: 0,
      words: (i) => `relative depth ${show(cursor[i])}`,
    },
    value: (s, i) => `${show(s.values[i])} (layer ${i + 1})`,
  });
  const series = measurements.map((m, k) => {
    const edges = Array.from({ length: m.mixing.length + 1 }, (_, t) => t / m.mixing.length);
    return {
      key: String(k),
      name: m.label,
      look: `m${k % 8}`,
      edges,
      isStepped: true,
      x: centres(edges),
      values: m.mixing,
    };
  });
  const items = series.map((s) => ({ ...s, on: true }));
  mount.append(
    element(
      "div",
      { class: "controls" },
      toggles("Measurements", items, (set) => chart.update(series.filter((s) => set.has(s.key)))),
    ),
    chart.root,
  );
  chart.update(series);
}

const DEPTH_QUANTITIES = {
  first: "influence on token 0",
  last: "influence on the last position",
  mean: "mean position / (length − 1)",
};

function depthCurveChart(depth) {
  const layers = Array.from({ length: depth + 1 }, (_, t) => t);
  return new LineChart({
    description: "How a figure of the profile changes with the number of layers",
    xLabel: "layers",
    yLabel: "",
    xDomain: [-0.3, depth + 0.3],
    yDomain: [0, 1.02],
    isLog: false,
    height: 230,
    xTicks: (most) => niceTicks(0, depth, most).filter(Number.isInteger),
    cursor: { x: layers, label: "Layers", name: "depth of curve", start: depth, words: (i) => `after ${i} layers` },
    value: (s, i) => show(s.values[i]),
  });
}

function mountDepth(mount, { edges, series }) {
  const names = Object.keys(series);
  const depth = series[names[0]].profiles.length - 1;
  const n = edges[edges.length - 1];
  const shifted = edges.map((edge) => edge - 0.5);
  const state = { layers: depth, quantity: "first", shown: new Set(names) };
  const high = Math.max(...names.flatMap((name) => series[name].profiles.slice(1).flat()));
  const chart = new LineChart({
    description: "Influence against position after the chosen number of layers",
    xLabel: "position",
    yLabel: "influence, × fair share",
    xDomain: [-0.8, n - 0.2],
    // One scale for all layers, so that only the curves move.
    yDomain: [0.01, high * 1.5],
    isLog: true,
    mark: 1,
    cursor: {
      x: centres(shifted),
      label: "Position",
      name: "depth position",
      words: (i) => `position ${showBin(edges, i)}`,
    },
    value: (s, i) => showInfluence(s.values[i], n, edges[i + 1] - edges[i]),
  });
  const curves = depthCurveChart(depth);
  const curveDomain = (visible) => {
    if (state.quantity !== "first") return [0, 1.02];
    return [0, Math.max(1e-6, ...visible.flatMap((name) => series[name].first)) * 1.08];
  };
  const refresh = () => {
    const visible = names.filter((name) => state.shown.has(name));
    chart.update(
      visible.map((name) => ({
        key: name,
        name,
        look: VARIANT_LOOKS[name],
        x: centres(shifted),
        edges: shifted,
        isStepped: hasWideBins(edges),
        values: series[name].profiles[state.layers],
      })),
    );
    curves.update(
      visible.map((name) => ({
        key: name,
        name,
        look: VARIANT_LOOKS[name],
        x: series[name][state.quantity].map((_, t) => t),
        values: series[name][state.quantity],
      })),
      { yLabel: DEPTH_QUANTITIES[state.quantity], yDomain: curveDomain(visible) },
    );
  };
  mount.append(
    element(
      "div",
      { class: "controls" },
      slider({
        label: "Layers",
        max: depth,
        value: depth,
        name: "depth",
        words: (t) => `after ${t} of ${depth}`,
        changed: (t) => {
          state.layers = t;
          refresh();
        },
      }),
      toggles("Predictions", names.map((key) => ({ key, name: key, look: VARIANT_LOOKS[key], on: true })), (set) => {
        state.shown = set;
        refresh();
      }),
    ),
    chart.root,
    radios("Against depth", Object.entries(DEPTH_QUANTITIES), state.quantity, (value) => {
      state.quantity = value;
      refresh();
    }),
    curves.root,
  );
  refresh();
}
