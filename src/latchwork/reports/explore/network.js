"use strict";
// One step of a network, as the library computes it: sums are taken in double precision and every result is stored as
// float32; the recurrence itself only compares and copies, and never rounds.

function decode(value) {
  if (Array.isArray(value)) return value.map(decode);
  if (value === null || typeof value !== "object") return value;
  if ("float32" in value) {
    const bytes = Uint8Array.from(atob(value.float32), each => each.charCodeAt(0)), view = new DataView(bytes.buffer);
    const numbers = Float32Array.from({ length: bytes.length / 4 }, (_, place) => view.getFloat32(4 * place, true));
    return { shape: value.shape, numbers };
  }
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, decode(each)]));
}

const sigmoid = z => 1 / (1 + Math.exp(-z));

function erf(z) { // a sum of positive terms: no digits cancel
  const size = Math.abs(z);
  if (size > 5) return Math.sign(z);
  let term = size, sum = size;
  for (let n = 1; term > sum * 1e-17; n++) sum += (term *= 2 * size * size / (2 * n + 1));
  return Math.sign(z) * 2 / Math.sqrt(Math.PI) * Math.exp(-size * size) * sum;
}

const ACTIVATIONS = {
  "relu": z => Math.max(z, 0),
  "relu^2": z => Math.max(z, 0) ** 2,
  "gelu": z => z / 2 * (1 + erf(z / Math.SQRT2)),
  "swish": z => z * sigmoid(z),
  "sigmoid": sigmoid,
  "selu": z => 1.0507009873554805 * (z > 0 ? z : 1.6732632423543772 * Math.expm1(z)),
};

function matvec(matrix, input, bias, from = 0) { // columns from, from + 1, ... of the matrix
  const [rows, columns] = matrix.shape, out = new Float32Array(rows);
  for (let i = 0; i < rows; i++) {
    let sum = bias ? bias.numbers[i] : 0;
    const begin = i * columns + from;
    for (let k = 0; k < input.length; k++) sum += matrix.numbers[begin + k] * input[k];
    out[i] = sum;
  }
  return out;
}

const linear = (layer, input) => matvec(layer.weight, input, layer.bias);
const plus = (a, b) => a.map((each, place) => each + b[place]);

function norm(layer, input) {
  if (layer.kind === "none") return input;
  const centre = layer.kind === "layernorm";
  let mean = 0, square = 0;
  if (centre) for (const each of input) mean += each / input.length;
  for (const each of input) square += (each - mean) ** 2 / input.length;
  const scale = 1 / Math.sqrt(square + layer.eps);
  return input.map((each, k) => (each - mean) * scale * layer.weight.numbers[k] + (centre ? layer.bias.numbers[k] : 0));
}

function convolve(layer, now, before) {
  if (layer.kind === "gated") {
    return now.map((each, k) => each + (before[k] - each) * sigmoid(layer.g.numbers[k]));
  }
  return plus(matvec(layer.weight, now, layer.bias, now.length), matvec(layer.weight, before, null));
}

function feedForward(layer, input) {
  const up = linear(layer.up, input), act = ACTIVATIONS[layer.act];
  const width = layer.kind === "gated" ? up.length / 2 : up.length;
  return linear(layer.down, up.slice(0, width).map((z, k) => act(z) * (layer.kind === "gated" ? up[width + k] : 1)));
}

function roundEven(value) {
  const floor = Math.floor(value), rest = value - floor;
  return rest === 0.5 ? floor + floor % 2 : Math.round(value);
}

function onLevels(value, levels) {
  if (levels === null) return value;
  const round = Math.fround, place = round(Math.min(Math.max(value, -1), 1) + 1);
  return round((2 * roundEven(round(place * round((levels - 1) / 2))) - (levels - 1)) / (levels - 1));
}

function largest(values, begin, count, stride = 1) {
  let best = 0;
  for (let k = 1; k < count; k++) if (values[begin + k * stride] > values[begin + best * stride]) best = k;
  return best;
}

// What each state scalar of a cell does: its state after the step, the cap r and the floor s of its own place where
// there are such, and which place of its unit its level comes from (-1: it was written).
const CELLS = {
  scalar({ size, levels }, z, x) {
    return Array.from({ length: size }, (_, i) => {
      const r = onLevels(z[i], levels), s = onLevels(z[size + i], levels);
      const after = Math.max(Math.min(r, x[i]), s);
      return { before: x[i], after, r, s, from: after === x[i] ? i : -1 };
    });
  },
  matrix({ size, degree, levels }, z, x) {
    return Array.from({ length: size }, (_, i) => {
      const unit = i - i % degree, s = onLevels(z[size * degree + i], levels);
      const through = Array.from({ length: degree }, (_, k) => Math.min(onLevels(z[i * degree + k], levels), x[unit + k]));
      const after = Math.max(s, ...through), whole = k => through[k - unit] === after && x[k] === after;
      const places = [i, ...through.map((_, k) => unit + k)]; // its own place first: then it is held
      const from = places.find(whole) ?? -1;
      return { before: x[i], after, from };
    });
  },
  selection({ size, degree }, z, x, start) {
    return Array.from({ length: size }, (_, i) => {
      let choice = largest(z, i * degree, degree);
      if (z[size * degree + i] > z[i * degree + choice]) choice = -1;
      const from = choice < 0 ? -1 : i - i % degree + choice;
      return { before: x[i], after: from < 0 ? start[i] : x[from], from };
    });
  },
  transformation({ size, degree }, z, x) {
    const out = Array.from({ length: size }, (_, i) => ({ before: x[i], after: 0, from: -1 }));
    for (let k = 0; k < size; k++) {
      const to = out[k - k % degree + largest(z, k * degree, degree)];
      if (to.from < 0 || x[k] > to.after) Object.assign(to, { after: x[k], from: k });
    }
    return out;
  },
};
const WIDTHS = { scalar: () => 2, matrix: n => n + 1, selection: n => n + 1, transformation: n => n };

function recur(neuron, z, x) {
  const moves = [];
  let drive = 0;
  for (const cell of neuron.cells) {
    const begin = moves.length, width = cell.size * WIDTHS[cell.kind](cell.degree);
    const part = array => array.slice(begin, begin + cell.size);
    const found = CELLS[cell.kind](cell, z.slice(drive, drive + width), part(x), part(neuron.start.numbers));
    found.forEach((each, place) => {
      moves.push({ ...each, place: place % cell.degree, degree: cell.degree, from: each.from < 0 ? -1 : each.from % cell.degree });
    });
    drive += width;
  }
  const after = Float32Array.from(moves, each => each.after);
  const seen = neuron.gate ? after.map((each, k) => each * Math.fround(sigmoid(z[drive + k]))) : after;
  return { moves, after, y: linear(neuron.output, seen) };
}

class Network {
  constructor(data) {
    Object.assign(this, decode(data));
    this.width = this.embedding.shape[1];
  }

  start() {
    return {
      conv: this.layers.map(() => new Float32Array(this.width)),
      x: this.layers.map(layer => layer.neuron.start.numbers),
    };
  }

  // The state after a token, the answer to it, and what every state scalar of every layer did.
  step(state, token) {
    let u = this.embedding.numbers.slice(token * this.width, (token + 1) * this.width);
    const conv = [], x = [], moves = [];
    this.layers.forEach((layer, number) => {
      const now = norm(layer.normConv, u);
      const mixed = plus(u, convolve(layer.conv, now, state.conv[number]));
      const inside = norm(layer.normNeuron, plus(mixed, feedForward(layer.ffn, norm(layer.normFfn, mixed))));
      const found = recur(layer.neuron, linear(layer.neuron.projection, inside), state.x[number]);
      u = plus(u, found.y);
      conv.push(now);
      x.push(found.after);
      moves.push(found.moves);
    });
    if (this.postFfn) u = plus(u, feedForward(this.postFfn, norm(this.normPostFfn, u)));
    const logits = matvec(this.head, norm(this.normPost, u), null);
    return { state: { conv, x }, answer: largest(logits, 0, logits.length), logits, moves };
  }

  run(word) {
    const steps = [];
    for (const token of word) steps.push(this.step(steps.length ? steps[steps.length - 1].state : this.start(), token));
    return steps;
  }
}

// How many steps were compared with PyTorch's, and how many of them differ, in an answer or in a state beyond `allowed`.
function compareWithTorch(network, check, allowed) {
  const { numbers } = decode(check.states), found = { steps: 0, answers: 0, states: 0, furthest: 0 };
  let place = 0;
  check.words.forEach((word, row) => network.run(word).forEach((step, t) => {
    let far = 0;
    for (const x of step.state.x) for (const each of x) far = Math.max(far, Math.abs(each - numbers[place++]));
    found.steps += 1;
    found.furthest = Math.max(found.furthest, far);
    found.answers += step.answer !== check.answers[row][t];
    found.states += !(far <= allowed);
  }));
  return found;
}
