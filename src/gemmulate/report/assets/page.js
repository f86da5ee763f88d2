// The page: reads its controls, evaluates the model and draws. DATA is the JSON that Python put into the page.
"use strict";
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const { rate, short, seconds } = charts;
  const make = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const show = (id, ...parts) => byId(id).replaceChildren(...parts);

  // What the size means for each kernel, and where it begins.
  const SIZES = {
    gemm: { start: 16384, label: "n, of n³", of: (n) => ({ m: n, n, k: n }) },
    gemv: { start: 16384, label: "n, of an n×n matrix", of: (n, s) => ({ m: n, n, rhs: s.rhs }) },
    spmv: { start: 1e7, label: "nonzeros", of: (n, s) => ({ nnz: n, convert: s.convert }) },
    stencil7: { start: 512, label: "n, of n³ points", of: (n) => ({ points: n ** 3 }) },
  };

  const number = (id) => (byId(id).value.trim() === "" ? NaN : Number(byId(id).value));
  const state = () => ({
    device: DATA.devices.find((d) => d.key === byId("device").value), kernel: byId("kernel").value, size: number("size"),
    rhs: number("rhs"), convert: byId("convert").value, scheme: byId("scheme").value, r: number("r"), c_q: number("c_q"),
    spread: byId("spread").checked, composition: byId("composition").value,
    pipeline: byId("pipeline").value, precomputed: byId("precomputed").checked,
  });
  const kernelOf = (s) => {
    const sizes = SIZES[s.kernel].of(s.size, s);
    return model.kernel(s.kernel, sizes);
  };
  const methodOf = (s, changes = {}) =>
    model.method(DATA, {
      scheme: s.scheme, r: s.r, c_q: s.spread ? null : s.c_q, composition: s.composition, pipeline: s.pipeline,
      precomputed: s.precomputed, ...changes,
    });

  const answer = (s) => {
    const found = model.predict(s.device, kernelOf(s), methodOf(s));
    const even = Math.abs(found.speedup - 1) <= 0.005;
    const verdict = even ? "even" : found.speedup > 1 ? "emulation pays" : "native FP64 wins";
    const range = found.range[1] > found.range[0] * 1.005 ? ` (${short(found.range[0])} – ${short(found.range[1])})` : "";
    show(
      "answer", make("strong", `${short(found.speedup)}×`, { id: "speedup", "data-value": found.speedup }),
      make("span", `${range} ${verdict}, bound by ${found.bound}`), make("br"),
      make("span", `native ${seconds(found.native)}, emulated ${seconds(found.emulated)}, ` +
        `${short(found.flopPerInput)} FLOP for each converted input`),
    );
    show("terms", charts.termBars(found.stages ?? found.terms, found.emulated));
  };

  const limits = (s) => {
    const kernel = kernelOf(s);
    const t = model.thresholds(s.device, s.r, s.c_q, model.flopPerInput(kernel));
    const rows = [
      ["OI*", `${short(t.oiStar)} FLOP/B`, "below it native wins, whatever the matrix units do"],
      ["conversion roof", rate(t.roof, "B/s"), `${(100 * t.roof / s.device.si.memory[0]).toFixed(0)} % of memory's rate`],
      ["break-even c_q", short(t.breakEven), "the largest at which this kernel still breaks even"],
      ["memory-roof c_q", short(t.memoryRoof), "up to it conversion keeps up with memory"],
    ];
    show("limits", ...rows.map((cells) => {
      const row = make("tr");
      row.append(...cells.map((text) => make("td", text)));
      return row;
    }));
  };

  const roofline = (s) => {
    const rates = model.at(s.device), how = methodOf(s);
    const narrow = rates[how.scheme.unit];
    if (narrow === undefined) throw new model.ModelError(`${s.device.name} has no ${how.scheme.unit} rate`);
    const t = rates.int32 === undefined ? null : model.thresholds(s.device, s.r, s.c_q, 2);
    const points = DATA.cases.map((c) => {
      const kernel = model.kernel(c.kernel, c.sizes);
      const found = model.predict(s.device, kernel, methodOf(s, { pipeline: "fused", precomputed: false }));
      return { label: c.label, oi: kernel.flops / model.bytes(kernel), flops: kernel.flops / found.emulated };
    });
    const mine = kernelOf(s), found = model.predict(s.device, mine, how);
    points.push({ label: "chosen", oi: mine.flops / model.bytes(mine), flops: mine.flops / found.emulated });
    show("roofline", charts.roofline({
      name: s.device.name, memory: rates.memory, fp64: model.nativeRate(rates, mine), ceiling: narrow / how.alpha,
      conversion: t && t.roof, oiStar: t && t.oiStar, points, selected: "chosen",
    }));
  };

  const tornado = (s) => {
    const how = methodOf(s), kernel = kernelOf(s);
    const swings = model.sensitivity(s.device, kernel, how);
    if (swings.length === 0) {
      show("tornado", make("p", "Nothing here is uncertain: every number of this device has one value."));
    } else show("tornado", charts.tornado(swings, model.predict(s.device, kernel, how).speedup));
  };

  // Every device and kernel at the chosen scheme, r and c_q; four terms, and three below.
  const matrix = (s) => {
    const fused = { pipeline: "fused", precomputed: false };
    const head = make("tr");
    head.append(make("th", "device"), ...DATA.cases.map((c) => make("th", c.label)));
    const rows = DATA.devices.map((device) => {
      const row = make("tr", undefined, device === s.device ? { class: "chosen" } : {});
      row.append(make("th", device.name, { scope: "row" }));
      for (const c of DATA.cases) {
        const cell = make("td");
        try {
          const kernel = model.kernel(c.kernel, c.sizes);
          const four = model.predict(device, kernel, methodOf(s, { ...fused, composition: "published" }));
          const three = model.predict(device, kernel, methodOf(s, { ...fused, composition: "three_term" }));
          cell.append(make("b", short(four.speedup)), make("small", ` of ${short(three.speedup)}`));
          cell.className = four.speedup > 1.005 ? "pays" : four.speedup < 0.995 ? "loses" : "even";
          cell.dataset.value = four.speedup;
          cell.dataset.three = three.speedup;
        } catch (error) {
          if (!(error instanceof model.ModelError)) throw error;
          cell.textContent = "–";
          cell.title = error.message;
        }
        row.append(cell);
      }
      return row;
    });
    byId("matrix").tHead.replaceChildren(head);
    byId("matrix").tBodies[0].replaceChildren(...rows);
  };

  const SECTIONS = { answer, limits, roofline, tornado, matrix };
  const CLEARED = { answer: ["answer", "terms"], limits: ["limits"], roofline: ["roofline"], tornado: ["tornado"], matrix: [] };

  const update = () => {
    const s = state();
    byId("rhs").disabled = s.kernel !== "gemv";
    byId("convert").disabled = s.kernel !== "spmv";
    byId("precomputed").disabled = s.kernel === "stencil7";
    byId("pipeline").disabled = s.kernel !== "gemm";
    if (s.kernel !== "gemm") s.pipeline = "fused";
    byId("composition").disabled = s.pipeline === "staged";
    if (s.pipeline === "staged") s.composition = "published";
    byId("c_q").disabled = s.spread;
    byId("size-label").textContent = `size: ${SIZES[s.kernel].label}`;
    byId("r-value").textContent = s.r;
    byId("c_q-value").textContent = s.c_q;
    if (s.kernel === "stencil7") s.precomputed = false;
    for (const [name, draw] of Object.entries(SECTIONS)) {
      try {
        draw(s);
      } catch (error) {
        if (!(error instanceof model.ModelError)) throw error;
        // The whole section or nothing: no number of an earlier choice stays beside the message.
        for (const id of CLEARED[name]) show(id);
        if (name !== "matrix") show(CLEARED[name][0], make("span", error.message, { class: "refused" }));
      }
    }
  };

  for (const [id, options] of [
    ["device", DATA.devices.map((d) => [d.key, d.name])], ["scheme", Object.keys(DATA.schemes).map((k) => [k, k])],
  ]) for (const [value, text] of options) byId(id).append(make("option", text, { value }));
  byId("device").value = DATA.selected;
  byId("scheme").value = "residues-fp8";
  byId("r").value = DATA.schemes["residues-fp8"].r_default;
  byId("size").value = SIZES.gemm.start;

  byId("kernel").addEventListener("change", () => { byId("size").value = SIZES[byId("kernel").value].start; });
  byId("scheme").addEventListener("change", () => { byId("r").value = DATA.schemes[byId("scheme").value].r_default; });
  byId("controls").addEventListener("input", update);
  byId("controls").addEventListener("change", update);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  update();
})();
