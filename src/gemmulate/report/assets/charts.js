// Charts as SVG elements: a roofline, bars of terms, a tornado. Logarithmic axes have a tick for each power of ten.
"use strict";
const charts = (() => {
  const NS = "http://www.w3.org/2000/svg";
  const element = (name, attributes = {}, text) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const figure = (height, title, parts) => {
    const svg = element("svg", { viewBox: `0 0 760 ${height}`, role: "img" });
    svg.append(element("title", {}, title), ...parts);
    return svg;
  };
  const label = (x, y, text, attributes = {}) => element("text", { x, y, ...attributes }, text);
  const line = (x1, y1, x2, y2, attributes) => element("line", { x1, y1, x2, y2, ...attributes });

  const UNITS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
  const rate = (value, unit) => {
    const [size, prefix] = UNITS.find(([s]) => value >= s) ?? [1, ""];
    return `${short(value / size)} ${prefix}${unit}`;
  };
  const short = (value) => (value >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(3))));
  const seconds = (value) => {
    if (value === 0) return "0";
    const [size, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]].find(([s]) => value >= s) ?? [1e-12, "ps"];
    return `${short(value / size)} ${unit}`;
  };

  const logAxis = (low, high, start, end) => {
    const [a, b] = [Math.log10(low), Math.log10(high)];
    return (value) => start + ((Math.log10(value) - a) / (b - a)) * (end - start);
  };

  // FLOP/s over FLOP/byte: native memory and FP64 roofs, the emulated ceiling, the conversion roof, kernels as points.
  const roofline = ({ name, memory, fp64, ceiling, conversion, oiStar, points, selected }) => {
    const left = 70, right = 740, top = 20, bottom = 330;
    const low = 0.05, high = 1e5;
    const most = Math.max(fp64, ceiling, ...points.map((p) => p.flops)) * 3;
    const least = Math.min(memory, conversion ?? Infinity) * low;
    const x = logAxis(low, high, left, right), y = logAxis(least, most, bottom, top);
    const parts = [];
    for (let p = -1; p <= 5; p += 1) {
      parts.push(line(x(10 ** p), top, x(10 ** p), bottom, { class: "grid" }));
      parts.push(label(x(10 ** p), bottom + 16, `1e${p}`, { "text-anchor": "middle" }));
    }
    for (let p = Math.ceil(Math.log10(least)); 10 ** p <= most; p += 1) {
      parts.push(line(left, y(10 ** p), right, y(10 ** p), { class: "grid" }));
      parts.push(label(left - 6, y(10 ** p) + 4, rate(10 ** p, ""), { "text-anchor": "end" }));
    }
    parts.push(label((left + right) / 2, bottom + 34, "FLOP per byte", { "text-anchor": "middle" }));
    parts.push(label(left, 12, "FLOP/s"));
    // A roof of slope B up to the ceiling P: the corner is at P/B.
    const roof = (slope, cap, cls, text, dy) => {
      const corner = Math.min(Math.max(cap / slope, low), high);
      const d = `M${x(low)},${y(slope * low)} L${x(corner)},${y(Math.min(cap, slope * corner))} L${x(high)},${y(cap)}`;
      parts.push(element("path", { d, class: `roof ${cls}` }));
      parts.push(label(right - 4, y(cap) + dy, text, { "text-anchor": "end", class: cls }));
    };
    roof(memory, fp64, "native", `native FP64 ${rate(fp64, "FLOP/s")}, memory ${rate(memory, "B/s")}`, -5);
    roof(memory, ceiling, "three", `three terms: ${rate(ceiling, "FLOP/s")}`, -5);
    if (conversion !== null) {
      roof(Math.min(memory, conversion), ceiling, "four", `conversion roof: ${rate(conversion, "B/s")}`, 14);
      parts.push(line(x(oiStar), top, x(oiStar), bottom, { class: "star" }));
      parts.push(label(x(oiStar) + 4, bottom - 6, `OI* ${short(oiStar)}`, { class: "four" }));
    }
    // What a name may not cover: the points, and names placed before it; a letter is 6 wide and 11 high.
    const taken = points.map((p) => ({ top: y(p.flops) - 4, bottom: y(p.flops) + 4, start: x(p.oi) - 4, end: x(p.oi) + 4 }));
    points.forEach((p) => {
      if (!(p.oi >= low && p.oi <= high)) return;
      parts.push(element("circle", { cx: x(p.oi), cy: y(p.flops), r: p.label === selected ? 6 : 4, class: "point" }));
      // Under the ceilings' names there is room on the left only; elsewhere the first height that covers nothing.
      const far = p.oi > 30, chosen = p.label === selected;
      const box = (dy) => ({
        top: y(p.flops) + dy - 9, bottom: y(p.flops) + dy + 2, start: x(p.oi) + 7, end: x(p.oi) + 7 + 6 * p.label.length,
      });
      const free = (dy) => taken.every((o) =>
        box(dy).bottom <= o.top || box(dy).top >= o.bottom || box(dy).end <= o.start || box(dy).start >= o.end);
      const dy = chosen ? -10 : far ? 18 : [4, 15, -7, 26, -18].find(free) ?? 4;
      if (!far && !chosen) taken.push(box(dy));
      parts.push(label(x(p.oi) + (far || chosen ? -7 : 7), y(p.flops) + dy, p.label,
        { "text-anchor": far || chosen ? "end" : "start" }));
    });
    return figure(370, `Roofline of ${name} with the conversion roof`, parts);
  };

  // The four terms of a fused kernel, or the stages of a staged pipeline.
  const NAMES = { mma: "T_mma", mem: "T_mem", dec: "T_dec", rec: "T_rec" };
  const termBars = (terms, total) => {
    const longest = Math.max(...Object.values(terms), 1e-300);
    const parts = Object.entries(terms).flatMap(([name, value], index) => {
      const y = 24 * index, width = (400 * value) / longest;
      return [
        label(0, y + 16, NAMES[name] ?? name), element("rect", { x: 76, y: y + 4, width, height: 16, class: `term ${name}` }),
        label(84 + width, y + 16, seconds(value)),
      ];
    });
    return figure(24 * Object.keys(terms).length + 4, `Terms of ${seconds(total)}`, parts);
  };

  const tornado = (swings, nominal) => {
    const ends = swings.flatMap((s) => s.speedups).concat(nominal, 1);
    const pad = 1.15, x = logAxis(Math.min(...ends) / pad, Math.max(...ends) * pad, 200, 600);
    const parts = swings.flatMap((s, index) => {
      const y = 26 * index + 8, [a, b] = [...s.speedups].sort((p, q) => p - q);
      const cq = s.quantity === "c_q";
      return [
        label(0, y + 14, `${s.quantity} ${cq ? s.low : rate(s.low, "")} … ${cq ? s.high : rate(s.high, "")}`),
        element("rect", { x: x(a), y, width: Math.max(x(b) - x(a), 1), height: 18, class: "swing" }),
        label(x(a) - 4, y + 14, short(a), { "text-anchor": "end" }), label(x(b) + 4, y + 14, short(b)),
      ];
    });
    const bottom = 26 * swings.length + 8;
    parts.push(line(x(nominal), 0, x(nominal), bottom, { class: "nominal" }));
    parts.push(line(x(1), 0, x(1), bottom, { class: "star" }));
    parts.push(label(x(1), bottom + 14, "1: break-even", { "text-anchor": "middle" }));
    return figure(bottom + 20, "Speed-up as each uncertain number moves alone", parts);
  };

  return { roofline, termBars, tornado, rate, short, seconds };
})();
