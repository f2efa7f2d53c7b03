"use strict";
// A machine as SVG: states in columns by their distance from the start, or on a circle where arrows are many.

const SVG = "http://www.w3.org/2000/svg", RADIUS = 21, MOST_DRAWN = 30;

function svg(tag, attributes = {}, ...children) {
  const found = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  found.append(...children);
  return found;
}

// Whether the machine says of each word if it is in a language.
const isLanguage = (machine, answers) => machine.noAnswer === null && answers[1] === "yes";

// The states to draw: all but those that nothing comes of, unless the word is there; of a large machine, those that the
// word visits, the nearest to step t.
function drawnStates(machine, steps, t, language) {
  const visited = new Set([machine.start, ...steps.map(each => each.after)]), live = liveStates(machine);
  const asked = machine.transitions.map(() => false);
  machine.transitions.forEach((row, from) => row.forEach((to, symbol) => { asked[to] ||= machine.outputs[from][symbol] !== (language ? 0 : machine.noAnswer); }));
  const kept = asked.map((_, state) => state).filter(state => live[state] || asked[state] || visited.has(state));
  if (kept.length <= MOST_DRAWN) return kept;
  const near = steps.map((each, step) => [Math.abs(step + 1 - t), each.after]).sort((a, b) => a[0] - b[0]);
  return [...new Set([machine.start, ...near.map(each => each[1])])].slice(0, MOST_DRAWN).sort((a, b) => a - b);
}

// The output of every arrow into a state, if it is one and the same for each state drawn, and asked for: then it belongs
// to the state.
function stateOutputs(machine, states) {
  const found = new Map();
  for (const [from, row] of machine.transitions.entries()) {
    for (const [symbol, to] of row.entries()) {
      const output = machine.outputs[from][symbol];
      if (found.has(to) && found.get(to) !== output) return null;
      found.set(to, output);
    }
  }
  return states.every(state => state === machine.start || found.get(state) !== machine.noAnswer) ? found : null;
}

function placeStates(machine, states, arrows) {
  const drawn = new Set(states), rank = new Map([[machine.start, 0]]), queue = [machine.start];
  for (const state of queue) {
    for (const to of machine.transitions[state]) {
      if (drawn.has(to) && !rank.has(to)) { rank.set(to, rank.get(state) + 1); queue.push(to); }
    }
  }
  for (const state of states) if (!rank.has(state)) rank.set(state, 0);
  const columns = [];
  for (const state of states) (columns[rank.get(state)] ||= []).push(state);
  const tall = Math.max(...columns.map(each => each ? each.length : 0));
  const between = arrows.filter(each => each.from !== each.to).length, places = new Map();
  if (states.length > 3 && (tall > 6 || between > 2.2 * states.length)) {
    const ring = Math.max(105, states.length * 62 / (2 * Math.PI));
    states.forEach((state, k) => {
      const angle = Math.PI + 2 * Math.PI * k / states.length;
      places.set(state, { x: ring * Math.cos(angle), y: ring * Math.sin(angle), out: angle });
    });
    return { places, round: true };
  }
  columns.forEach((column, x) => column.forEach((state, k) => { // loops stand above, below the last of a column, and beside it
    const between = k > 0 && k < column.length - 1 && x === columns.length - 1;
    const out = between ? 0 : k > 0 && k === column.length - 1 ? Math.PI / 2 : -Math.PI / 2;
    places.set(state, { x: 135 * x, y: 108 * (k - (column.length - 1) / 2), out });
  }));
  return { places, round: false };
}

function drawMachine(machine, symbols, answers, steps, t) {
  const language = isLanguage(machine, answers), states = drawnStates(machine, steps, t, language), drawn = new Set(states);
  const current = t ? steps[t - 1].after : machine.start, taken = t ? steps[t - 1] : null;
  const owned = stateOutputs(machine, states), whole = machine.transitions.length <= MOST_DRAWN + 1;
  const walked = new Set(steps.map(each => each.before + ">" + each.after));
  const arrows = arrowsOf(machine, symbols, owned ? null : answers)
    .filter(each => drawn.has(each.from) && drawn.has(each.to) && (whole || walked.has(each.from + ">" + each.to)));
  const { places, round } = placeStates(machine, states, arrows), dense = arrows.length > 24;
  const reach = [], lines = [], texts = [];
  const say = (x, y, labels, anchor, kind) => labels.forEach((label, k) => {
    const text = svg("text", { x, y: y + 14 * (k - (labels.length - 1) / 2) + 4, "text-anchor": anchor, class: kind }, label);
    texts.push(text);
    const width = 7 * label.length, left = anchor === "start" ? x : anchor === "end" ? x - width : x - width / 2;
    reach.push([left, y - 10], [left + width, y + 14 * labels.length]);
  });
  for (const { from, to, labels } of arrows) {
    const a = places.get(from), b = places.get(to);
    const lit = taken && from === taken.before && to === taken.after, next = from === current;
    const kind = lit ? "lit" : next ? "next" : "far";
    let path, label;
    if (from === to) {
      const { x, y, out } = a, at = (turn, far) => `${x + far * RADIUS * Math.cos(out + turn)},${y + far * RADIUS * Math.sin(out + turn)}`;
      path = `M${at(-0.55, 1)} C${at(-0.6, 2.7)} ${at(0.6, 2.7)} ${at(0.55, 1.12)}`;
      label = [x + 2.75 * RADIUS * Math.cos(out), y + 2.75 * RADIUS * Math.sin(out)];
      reach.push(label);
    } else {
      const wide = Math.hypot(b.x - a.x, b.y - a.y), angle = Math.atan2(b.y - a.y, b.x - a.x);
      const far = !round && Math.abs(b.x - a.x) > 136 || !round && b.x < a.x, bend = (far ? 0.32 : 0.16) * wide;
      const top = { x: (a.x + b.x) / 2 + bend * Math.sin(angle), y: (a.y + b.y) / 2 - bend * Math.cos(angle) };
      const leave = Math.atan2(top.y - a.y, top.x - a.x), arrive = Math.atan2(top.y - b.y, top.x - b.x);
      const one = [a.x + RADIUS * Math.cos(leave), a.y + RADIUS * Math.sin(leave)];
      const two = [b.x + (RADIUS + 3) * Math.cos(arrive), b.y + (RADIUS + 3) * Math.sin(arrive)];
      path = `M${one} Q${top.x},${top.y} ${two}`;
      label = [(one[0] + 2 * top.x + two[0]) / 4 + 9 * Math.sin(angle), (one[1] + 2 * top.y + two[1]) / 4 - 9 * Math.cos(angle)];
      reach.push(label);
    }
    lines.push([kind, svg("path", { d: path, class: "arrow " + kind, "marker-end": `url(#head-${kind})` })]);
    if (!dense || lit || next) say(label[0], label[1], labels, from === to && a.out === 0 ? "start" : "middle", "label " + kind);
  }
  const first = places.get(machine.start);
  lines.push(["far", svg("path", { d: `M${first.x - 2.4 * RADIUS},${first.y} L${first.x - RADIUS - 3},${first.y}`, class: "arrow next", "marker-end": "url(#head-next)" })]);
  reach.push([first.x - 2.5 * RADIUS, first.y]);
  const nodes = states.map(state => {
    const { x, y } = places.get(state), output = owned ? owned.get(state) : undefined;
    const plain = output === undefined || output === machine.noAnswer || language;
    const shown = !plain ? String(answers[output] ?? output) : owned && !language && state === machine.start ? "start" : String(state);
    reach.push([x - RADIUS - 4, y - RADIUS - 4], [x + RADIUS + 4, y + RADIUS + 4]);
    const group = svg("g", { class: "state" + (state === current ? " current" : "") }, svg("circle", { cx: x, cy: y, r: RADIUS }));
    if (language && owned && output === 1) group.append(svg("circle", { cx: x, cy: y, r: RADIUS - 4, class: "accepts" }));
    group.append(svg("text", { x, y: y + 5, "text-anchor": "middle", class: shown.length > 3 ? "long" : "" }, shown));
    return group;
  });
  const order = { far: 0, next: 1, lit: 2 };
  lines.sort((a, b) => order[a[0]] - order[b[0]]);
  const xs = reach.map(each => each[0]), ys = reach.map(each => each[1]);
  const [left, top] = [Math.min(...xs) - 8, Math.min(...ys) - 8];
  const [width, height] = [Math.max(...xs) - left + 8, Math.max(...ys) - top + 8];
  const heads = ["far", "next", "lit"].map(kind => svg("marker", { id: "head-" + kind, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto", class: kind }, svg("path", { d: "M0,0 L8,4 L0,8 z" })));
  const picture = svg("svg", { viewBox: [left, top, width, height].map(Math.round).join(" "), width: Math.round(width), role: "img" },
    svg("defs", {}, ...heads), ...lines.map(each => each[1]), ...nodes, ...texts);
  picture.setAttribute("aria-label", `A machine of ${machine.transitions.length} states; the current one is ${current}.`);
  return { picture, shown: states.length, current: places.get(current).x - left, width };
}
