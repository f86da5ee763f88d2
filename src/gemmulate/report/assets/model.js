// The time model's formulas, the same as in gemmulate.model (kernels, terms, predict, thresholds).
// A test evaluates both and compares every number.
"use strict";
const model = (() => {
  const FLOAT64 = 8, INDEX = 4, INT32 = 4;

  class ModelError extends Error {}

  const integer = (name, value, high = 2 ** 50) => {
    if (!Number.isInteger(value) || value < 1 || value > high) {
      throw new ModelError(`${name} = ${value} is not an integer in 1 … ${high}`);
    }
    return value;
  };
  const number = (name, value, low) => {
    if (!(value >= low && value <= 1e6)) throw new ModelError(`${name} = ${value} is not a number in ${low} … 1000000`);
    return value;
  };

  // Kernels: counts of one call.
  const gemm = ({ m, n, k }) => {
    const left = m * k, right = k * n, result = m * n;
    return {
      name: "gemm", flops: 2 * result * k, reusable: left, other: right, outputs: result,
      reusableBytes: FLOAT64 * left, otherBytes: FLOAT64 * (right + result), tensor: true, keeps: true,
    };
  };
  const gemv = ({ m, n, rhs }) => ({
    name: "gemv", flops: 2 * m * n * rhs, reusable: m * n, other: n * rhs, outputs: m * rhs,
    reusableBytes: FLOAT64 * m * n, otherBytes: FLOAT64 * (n * rhs + m * rhs), tensor: false, keeps: true,
  });
  const spmv = ({ nnz, convert }) => ({
    name: "spmv", flops: 2 * nnz, reusable: nnz * (convert === "bytes" ? (FLOAT64 + INDEX) / FLOAT64 : 1), other: 0,
    outputs: 0, reusableBytes: FLOAT64 * nnz, otherBytes: INDEX * nnz, tensor: false, keeps: true,
  });
  const stencil7 = ({ points }) => ({
    name: "stencil7", flops: 8 * points, reusable: 0, other: points, outputs: points, reusableBytes: 0,
    otherBytes: 2 * FLOAT64 * points, tensor: false, keeps: false,
  });
  const KERNELS = { gemm, gemv, spmv, stencil7 };

  const kernel = (name, sizes) => {
    for (const key of Object.keys(sizes)) if (key !== "convert") integer(key, sizes[key]);
    return KERNELS[name](sizes);
  };
  const bytes = (k) => k.reusableBytes + k.otherBytes;
  const flopPerInput = (k) => k.flops / (k.reusable + k.other);

  // Devices: values of each quantity in SI units, the nominal one first.
  const RATES = ["fp64", "memory", "fp64_tensor", "int8", "fp8", "fp4", "int32", "call_overhead", "emulation_overhead"];
  const at = (device, changes = {}) => {
    const chosen = {};
    for (const [key, values] of Object.entries(device.si)) chosen[key] = values[0];
    Object.assign(chosen, changes);
    const rates = { call_overhead: 0, emulation_overhead: 0 };
    for (const key of RATES) if (key in chosen) rates[key] = chosen[key];
    if (rates.int32 === undefined && chosen.sms && chosen.int32_lanes_per_sm) {
      let clock = chosen.clock;
      if (clock === undefined && device.si.fp64_lanes_per_sm) {
        clock = device.si.fp64[0] / (2 * device.si.sms[0] * device.si.fp64_lanes_per_sm[0]);
      }
      if (clock !== undefined) rates.int32 = chosen.sms * chosen.int32_lanes_per_sm * clock;
    }
    return rates;
  };
  const span = (values) => [Math.min(...values), Math.max(...values)];
  const uncertain = (device) => Object.keys(device.si).filter((key) => new Set(device.si[key]).size > 1);
  const corners = (device, keys) => {
    let found = [{}];
    for (const key of keys) {
      found = found.flatMap((changes) => [...new Set(span(device.si[key]))].map((v) => ({ ...changes, [key]: v })));
    }
    return found.map((changes) => at(device, changes));
  };

  // A way to emulate.
  const method = (data, options) => {
    const { scheme, r, c_q, composition = "published", pipeline = "fused", precomputed = false } = options;
    const cost = data.schemes[scheme];
    const moduli = integer("r", r ?? cost.r_default, 1024);
    const given = c_q !== null && c_q !== undefined;
    if (pipeline === "staged" && composition !== "published") {
      throw new ModelError("stages run one after another: no other composition is for them");
    }
    return {
      scheme: cost, r: moduli, given, c_q: given ? { value: number("c_q", c_q, 0), low: c_q, high: c_q } : cost.c_q,
      c_rec: data.c_rec[pipeline], composition, pipeline, precomputed, measured: scheme === data.measured_scheme,
      requantise: data.c_requantise,
      alpha: cost.quadratic ? (moduli * (moduli + 1)) / 2 : cost.slope * moduli + cost.offset,
      residueBytes: cost.bytes_per_r * moduli,
    };
  };

  // What conversion and reconstruction were measured to cost on a calibrated device, where no c_q was given.
  const ownCosts = (device, how) => {
    if (!how.measured || how.pipeline !== "fused") return how;
    const own = (key) => {
      const values = device.si[key];
      return values && { value: values[0], low: Math.min(...values), high: Math.max(...values) };
    };
    return { ...how, c_q: (!how.given && own("c_q")) || how.c_q, c_rec: own("c_rec") || how.c_rec };
  };

  const compositions = {
    published: (t) => Math.max(t.mma, t.mem, t.dec) + t.rec,
    three_term: (t) => Math.max(t.mma, t.mem) + t.rec,
    shared_pipe: (t) => Math.max(t.mma, t.mem, t.dec + t.rec),
    serial: (t) => t.mma + t.mem + t.dec + t.rec,
  };
  const nativeRate = (rates, k) => (k.tensor ? rates.fp64_tensor || rates.fp64 : rates.fp64);
  const beta = (k, how) =>
    how.precomputed ? ((k.reusableBytes / FLOAT64) * how.residueBytes + k.otherBytes) / bytes(k) : 1;

  // Four passes over memory, one after another: convert, multiply, requantise, recombine.
  const staged = (rates, k, how, converted, int32, { mma, dec, rec }) => {
    const sums = how.alpha * k.outputs;
    const traffic = {
      convert: (2 * FLOAT64 + how.residueBytes) * converted,
      multiply: how.residueBytes * (k.reusable + k.other) + INT32 * sums,
      requantise: INT32 * sums + how.r * k.outputs,
      recombine: (how.r + FLOAT64) * k.outputs,
    };
    const compute = { convert: dec, multiply: mma, requantise: (how.requantise * sums) / int32, recombine: rec };
    const stages = {};
    for (const [name, work] of Object.entries(compute)) stages[name] = Math.max(work, traffic[name] / rates.memory);
    const bytes = Object.values(traffic).reduce((a, b) => a + b);
    return { stages, terms: { mma, mem: bytes / rates.memory, dec, rec, requantise: stages.requantise } };
  };
  const longest = (times) => Object.entries(times).reduce((a, b) => (b[1] > a[1] ? b : a))[0];
  const needsIntegers = (how) => how.composition !== "three_term" || how.c_rec.high > 0;

  const evaluate = (rates, k, how, c_q, c_rec) => {
    const native = rates.call_overhead + Math.max(k.flops / nativeRate(rates, k), bytes(k) / rates.memory);
    const converted = k.other + (how.precomputed ? 0 : k.reusable);
    const int32 = rates.int32 ?? Infinity;
    const terms = {
      mma: (how.alpha * k.flops) / rates[how.scheme.unit],
      mem: (beta(k, how) * bytes(k)) / rates.memory,
      dec: (c_q * how.r * converted) / int32,
      rec: (c_rec * how.r * k.outputs) / int32,
    };
    const overhead = rates.call_overhead + rates.emulation_overhead;
    if (how.pipeline === "staged") {
      const found = staged(rates, k, how, converted, int32, terms);
      const emulated = overhead + Object.values(found.stages).reduce((a, b) => a + b);
      return { native, emulated, ...found, speedup: native / emulated, bound: longest(found.stages) };
    }
    const emulated = overhead + compositions[how.composition](terms);
    const counted = Object.entries(terms).filter(([key]) => how.composition !== "three_term" || key !== "dec");
    return { native, emulated, terms, speedup: native / emulated, bound: longest(Object.fromEntries(counted)) };
  };

  const check = (device, k, how) => {
    const rates = at(device);
    if (rates[how.scheme.unit] === undefined) throw new ModelError(`${device.name} has no ${how.scheme.unit} rate`);
    if (rates.int32 === undefined && needsIntegers(how)) {
      throw new ModelError(`${device.name} has no integer rate, which T_dec needs`);
    }
    if (!k.keeps && how.precomputed) throw new ModelError(`${k.name} has no operand to convert beforehand`);
    if (how.pipeline === "staged" && k.name !== "gemm") throw new ModelError(`the staged pipeline is for gemm, not ${k.name}`);
  };
  const relevant = (device, k, how) => {
    const used = new Set([k.tensor && device.si.fp64_tensor ? "fp64_tensor" : "fp64", how.scheme.unit, "memory"]);
    for (const key of ["call_overhead", "emulation_overhead"]) used.add(key);
    if (needsIntegers(how)) {
      for (const key of device.si.int32 ? ["int32"] : ["sms", "int32_lanes_per_sm", "clock"]) used.add(key);
    }
    return uncertain(device).filter((key) => used.has(key));
  };

  const predict = (device, k, asked) => {
    const how = ownCosts(device, asked);
    check(device, k, how);
    const point = evaluate(at(device), k, how, how.c_q.value, how.c_rec.value);
    const rates = corners(device, relevant(device, k, how));
    // The speed-up's least value may lie where native turns from memory- to compute-bound.
    const [low, high] = span(rates.map((q) => q.memory));
    const kinks = rates.map((q) => ({ ...q, memory: (bytes(k) * nativeRate(q, k)) / k.flops }));
    const costs = [how.c_q.low, how.c_q.high].flatMap((c_q) => [how.c_rec.low, how.c_rec.high].map((c_rec) => [c_q, c_rec]));
    const all = [...rates, ...kinks.filter((q) => low < q.memory && q.memory < high)]
      .flatMap((q) => costs.map(([c_q, c_rec]) => evaluate(q, k, how, c_q, c_rec)));
    return { ...point, range: span(all.map((p) => p.speedup)), flopPerInput: flopPerInput(k) };
  };

  const thresholds = (device, r, c_q, phi, tensor = false) => {
    const rates = at(device);
    if (rates.int32 === undefined) throw new ModelError(`${device.name} has no integer rate`);
    const fp64 = tensor ? rates.fp64_tensor || rates.fp64 : rates.fp64;
    return {
      oiStar: (c_q * r * fp64) / (FLOAT64 * rates.int32), roof: (FLOAT64 * rates.int32) / (c_q * r),
      breakEven: (phi * rates.int32) / (r * fp64), memoryRoof: (FLOAT64 * rates.int32) / (r * rates.memory),
    };
  };

  // Each uncertain quantity alone over its span, the rest nominal, widest swing first.
  const sensitivity = (device, k, asked) => {
    const how = ownCosts(device, asked), { c_q, c_rec } = how;
    const speedup = (rates, cost) => evaluate(rates, k, how, cost, c_rec.value).speedup;
    check(device, k, how);
    const swings = relevant(device, k, how).map((quantity) => {
      const [low, high] = span(device.si[quantity]);
      const ends = [low, high].map((v) => speedup(at(device, { [quantity]: v }), c_q.value));
      return { quantity, low, high, speedups: ends };
    });
    if (c_q.low < c_q.high) {
      const { low, high } = c_q;
      swings.push({ quantity: "c_q", low, high, speedups: [low, high].map((c) => speedup(at(device), c)) });
    }
    const width = (s) => Math.abs(s.speedups[1] - s.speedups[0]);
    return swings.sort((a, b) => width(b) - width(a));
  };

  return { kernel, method, predict, thresholds, sensitivity, at, bytes, flopPerInput, nativeRate, ModelError };
})();
