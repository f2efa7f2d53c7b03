"use strict";
// What the page shows of a word that was run: the roll of all steps, and the units at one.

function element(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) found.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) found.setAttribute(name, value);
  }
  found.append(...children);
  return found;
}

const MARKS = { set: "▲", reset: "▼", hold: "·" };
const actionOf = move => move.after > move.before ? "set" : move.after < move.before ? "reset" : "hold";
const shortNumber = value => String(+value.toPrecision(3)).replace("-", "−");

// "unit 3", "unit 2, place 1", and with several layers "layer 1, ...".
function unitName(network, layer, scalar, moves) {
  const { degree, place } = moves[layer][scalar];
  let unit = 0;
  for (let k = 0; k < scalar; k++) unit += moves[layer][k].place === moves[layer][k].degree - 1;
  const name = degree > 1 ? `${unit + 1}.${place + 1}` : String(unit + 1);
  return network.layers.length > 1 ? `layer ${layer + 1}, ${name}` : `unit ${name}`;
}

// The scalars to show, as [layer, scalar]: all, or those that change in the word; and how many there are.
function shownScalars(steps, all) {
  const found = [];
  let count = 0;
  if (steps.length) {
    steps[0].moves.forEach((moves, layer) => moves.forEach((_, scalar) => {
      count += 1;
      if (all || steps.some(step => step.moves[layer][scalar].after !== step.moves[layer][scalar].before)) found.push([layer, scalar]);
    }));
  }
  return { found, count };
}

function levelRange(network, steps) {
  let [low, high] = [Infinity, -Infinity];
  const see = value => { low = Math.min(low, value); high = Math.max(high, value); };
  for (const x of network.start().x) x.forEach(see);
  for (const step of steps) for (const x of step.state.x) x.forEach(see);
  if (low >= -1 && high <= 1 && low < 0) return [-1, 1];
  if (low >= 0 && high <= 1) return [0, 1];
  return low < high ? [low, high] : [low - 1, high + 1];
}

// A colour from blue through the paper's grey to orange, which all kinds of colour vision tell apart.
function levelStyle(value, [low, high]) {
  const part = Math.min(1, Math.max(0, (value - low) / (high - low)));
  return `--part:${(part * 100).toFixed(0)}%`;
}

function rollTable(subject, network, word, steps, target, t, all, onStep) {
  const head = element("tr", {}, element("th", { scope: "row" }, "step"));
  const rows = { reads: element("tr", {}, element("th", { scope: "row" }, "reads")) };
  if (network) rows.says = element("tr", {}, element("th", { scope: "row" }, "network"));
  if (target) rows.target = element("tr", {}, element("th", { scope: "row" }, subject.whose === "network" ? "machine" : network ? "target" : "matches"));
  word.forEach((symbol, step) => {
    const now = step + 1 === t ? "now" : null;
    const button = element("button", { type: "button", "aria-label": `Go to step ${step + 1}`, "aria-current": now ? "step" : null, tabindex: -1 }, String(step + 1));
    button.addEventListener("click", () => onStep(step + 1));
    head.append(element("th", { scope: "col", class: now }, button));
    rows.reads.append(element("td", { class: now }, subject.symbols[symbol]));
    const verdict = judge(network, steps, target, step);
    if (network) rows.says.append(element("td", { class: [now, verdict].filter(Boolean).join(" ") || null }, subject.answers[steps[step].answer] ?? "?", markOf(verdict)));
    if (target) rows.target.append(element("td", { class: [now, target[step].asked ? "" : "none"].filter(Boolean).join(" ") || null }, answerName(subject, target[step])));
  });
  const body = Object.values(rows);
  if (network && steps.length) {
    const range = levelRange(network, steps);
    for (const [layer, scalar] of shownScalars(steps, all).found) {
      const row = element("tr", { class: "unit" }, element("th", { scope: "row" }, unitName(network, layer, scalar, steps[0].moves)));
      steps.forEach((step, place) => {
        const move = step.moves[layer][scalar], action = actionOf(move);
        row.append(element("td", { class: "level " + action + (place + 1 === t ? " now" : ""), style: levelStyle(move.after, range), title: `${action}, level ${shortNumber(move.after)}` }, MARKS[action]));
      });
      body.push(row);
    }
  }
  return element("table", {}, element("caption", { class: "hidden" }, "What is read, answered and remembered at each step"), element("thead", {}, head), element("tbody", {}, ...body));
}

function judge(network, steps, target, step) {
  if (!network || !target || !target[step].asked) return "";
  return steps[step].answer === target[step].output ? "right" : "wrong";
}

function markOf(verdict) {
  return verdict ? element("span", { class: "verdict-mark" }, element("span", { "aria-hidden": true }, verdict === "right" ? "✓" : "✗"), element("span", { class: "hidden" }, verdict)) : "";
}

const answerName = (subject, { asked, output }) => asked ? String(subject.answers[output] ?? output) : "–";

// One line for each scalar: its name, what it does, and where: the band from s to r, the level before, the level after.
function unitRows(network, steps, t, all) {
  const { found } = shownScalars(steps, all), range = levelRange(network, steps), moves = steps[t - 1].moves;
  return found.map(([layer, scalar]) => {
    const move = moves[layer][scalar], action = actionOf(move);
    const why = move.degree === 1 ? "" : move.from < 0 ? "written" : move.from === move.place ? "stays" : `from ${move.from + 1}`;
    return element("li", { class: action },
      element("span", { class: "name" }, unitName(network, layer, scalar, moves)),
      element("span", { class: "action" }, element("b", { class: "mark " + action, "aria-hidden": true }, MARKS[action]), " " + action),
      levelBar(move, range),
      element("span", { class: "value" }, why ? why + " " : "", element("b", {}, shortNumber(move.after))));
  });
}

function levelBar({ before, after, r, s }, [low, high]) { // places in percent: the bar is as wide as there is room
  const part = value => 4 + 92 * Math.min(1, Math.max(0, (value - low) / (high - low))), at = value => part(value) + "%";
  const line = (from, to, y1, y2, kind) => svg("line", { x1: at(from), x2: at(to), y1, y2, class: kind });
  const picture = svg("svg", { class: "bar", role: "img" }, line(low, high, 12, 12, "axis"));
  let words = `from ${shortNumber(before)} to ${shortNumber(after)}`;
  if (r !== undefined) {
    const [left, right] = [part(Math.min(r, s)), part(Math.max(r, s))];
    picture.append(svg("rect", { x: left + "%", y: 6, width: right - left + "%", height: 12, class: s <= r ? "band" : "band crossed" }));
    picture.append(line(s, s, 3, 21, "floor"), line(r, r, 3, 21, "cap"));
    words += `; s ${shortNumber(s)}, r ${shortNumber(r)}`;
  }
  if (before !== after) picture.append(line(before, after, 12, 12, "move"));
  picture.append(svg("circle", { cx: at(before), cy: 12, r: 5, class: "before" }), svg("circle", { cx: at(after), cy: 12, r: 5, class: "after" }));
  picture.setAttribute("aria-label", words);
  return element("span", { class: "holder", title: words }, picture);
}
