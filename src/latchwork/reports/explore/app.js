"use strict";
// The page at work: what is chosen, the word, the step, and what follows when one of them changes.

const $ = id => document.getElementById(id);
const { subjects, word: firstWord } = JSON.parse($("data").textContent);
const LONGEST = 400, REGEX = "regex", EXAMPLE = "a(b|c)*d";
const now = { subject: null, network: null, word: [], steps: [], target: null, t: 0, timer: null };
const networks = new Map(); // made when first shown

function choose(place) {
  stop();
  $("regex").hidden = place !== REGEX;
  if (place === REGEX) return chooseRegex();
  const subject = subjects[place];
  if (!networks.has(place)) {
    const network = new Network(subject.network);
    networks.set(place, { network, check: compareWithTorch(network, subject.check, 1e-4) });
  }
  const { network, check } = networks.get(place);
  show(subject, network);
  const agree = check.answers + check.states === 0;
  $("check").textContent = agree
    ? `Each step is computed in this page. ${check.steps} steps were compared with PyTorch just now: all answers and states agree` + (check.furthest ? `, states within ${check.furthest.toExponential(0)}.` : ", bit for bit.")
    : `This page differs from PyTorch in ${check.answers} answers and ${check.states} states of ${check.steps} steps that were compared. Do not trust what it shows.`;
  $("check").className = agree ? "quiet" : "error";
}

function chooseRegex() {
  $("check").textContent = "The machine is made in this page; a network for it is compiled by: latchwork explore --regex EXPRESSION";
  $("check").className = "quiet";
  let machine;
  try {
    machine = regexMachine($("pattern").value, $("alphabet").value);
    $("regex-error").textContent = "";
  } catch (error) {
    $("regex-error").textContent = error.message;
    return;
  }
  show({ name: $("pattern").value, task: null, whose: REGEX, verdict: null, words: [], machine, symbols: machine.symbols, answers: ["no", "yes"],
    about: `The smallest machine of this expression: ${machine.transitions.length} state${machine.transitions.length === 1 ? "" : "s"}, ${machine.symbols.length} letter${machine.symbols.length === 1 ? "" : "s"}.` }, null);
}

function show(subject, network) {
  Object.assign(now, { subject, network });
  $("about").textContent = (subject.task ? `Task ${subject.task}: ` : "") + subject.about;
  $("verdict").hidden = !subject.verdict;
  if (subject.verdict) {
    const signs = { proved: "✓", wrong: "✗", unknown: "?" };
    $("verdict").className = "verdict " + subject.verdict.kind;
    $("verdict").replaceChildren(element("b", { "aria-hidden": true }, signs[subject.verdict.kind]), " " + subject.verdict.text);
  }
  for (const id of ["legend", "units-section"]) $(id).hidden = !network;
  $("hunt").hidden = !network || !subject.machine || subject.whose === "network";
  $("sample").hidden = false;
  $("symbols").replaceChildren(...subject.symbols.slice(0, 60).map((name, symbol) => {
    const button = element("button", { type: "button", "aria-label": `Add ${name}` }, name);
    button.addEventListener("click", () => setWord([...now.word, symbol], now.word.length + 1));
    return button;
  }));
  const replays = subject.words.slice(0, 12).map(({ tokens }) => {
    const button = element("button", { type: "button" }, writeWord(tokens, subject.symbols));
    button.addEventListener("click", () => setWord(tokens, tokens.length));
    return button;
  });
  if (replays.length) replays.unshift(element("span", { class: "quiet" }, `Replay (${subject.words[0].why}):`));
  $("replays").replaceChildren(...replays);
  const wrong = subject.words.find(each => each.why === "counterexample");
  if (wrong) setWord(wrong.tokens, wrong.tokens.length);
  else sample(12);
}

function sample(length = 8 + Math.floor(Math.random() * 17)) {
  const { subject } = now;
  const word = subject.machine ? sampleWord(subject.machine, length) : Array.from({ length }, () => Math.floor(Math.random() * subject.symbols.length));
  setWord(word, Math.min(1, word.length));
}

function setWord(word, t, typed = false) {
  if (!typed) stop();
  $("word-error").textContent = word.length > LONGEST ? `Only the first ${LONGEST} steps are shown.` : "";
  now.word = word.slice(0, LONGEST);
  if (!typed) $("word").value = writeWord(now.word, now.subject.symbols);
  now.steps = now.network ? now.network.run(now.word) : [];
  now.target = now.subject.machine ? walkMachine(now.subject.machine, now.word) : null;
  goTo(t);
}

function goTo(t) {
  const { subject, network, word, steps, target } = now;
  now.t = t = Math.max(0, Math.min(t, word.length));
  const all = $("all").checked;
  Object.assign($("slider"), { max: word.length, value: t });
  $("slider").setAttribute("aria-valuetext", `step ${t} of ${word.length}`);
  $("status").replaceChildren(...statusParts());
  const roll = rollTable(subject, network, word, steps, target, t, all, goTo);
  $("roll").replaceChildren(word.length ? roll : element("p", { class: "quiet empty" }, "Type a word, press symbols, or sample one."));
  const column = roll.querySelector("th.now"), box = $("roll");
  if (column) box.scrollLeft = column.offsetLeft - box.clientWidth / 2;
  if (network) {
    const range = levelRange(network, steps), { found, count } = shownScalars(steps, false);
    [$("low").textContent, $("high").textContent] = range.map(shortNumber);
    $("units-note").textContent = !t ? "Before the first step every unit is at its start." : !all && found.length < count
      ? `${found.length} of ${count} change in this word.` : "All units are shown.";
    if (t && steps[t - 1].moves.flat().some(move => move.r !== undefined)) $("units-note").textContent += " Each band runs from s (orange) to r (blue): the level is moved into it.";
    $("units").replaceChildren(t ? element("ul", {}, ...unitRows(network, steps, t, all)) : "");
  }
  showMachine();
}

function statusParts() {
  const { subject, network, word, steps, target, t } = now;
  if (!t) return [`Step 0 of ${word.length}: nothing read yet`];
  const parts = [`Step ${t} of ${word.length}: reads `, element("b", {}, subject.symbols[word[t - 1]])];
  if (network) parts.push(", says ", element("b", {}, subject.answers[steps[t - 1].answer] ?? "?"));
  if (target && network) parts.push(target[t - 1].asked ? ", target " : ", no answer asked for", target[t - 1].asked ? element("b", {}, answerName(subject, target[t - 1])) : "");
  if (target && !network) parts.push(target[t - 1].output ? ": matches" : ": does not match");
  const verdict = judge(network, steps, target, t - 1);
  if (verdict) parts.push(" ", element("span", { class: "chip " + verdict }, verdict === "right" ? "✓ right" : "✗ wrong"));
  return parts;
}

function showMachine() {
  const { subject, target, t } = now, box = $("machine");
  if (!subject.machine) {
    $("machine-note").textContent = subject.task ? "This task's machine is too large for a page." : "The network has too many states to draw its machine. Give its task: latchwork explore MODEL --task TASK";
    return box.replaceChildren();
  }
  const { picture, shown, current, width } = drawMachine(subject.machine, subject.symbols, subject.answers, target, t);
  const count = subject.machine.transitions.length, whose = { task: "What the task asks for", network: "What the network is", regex: "What the expression is" }[subject.whose];
  const notes = [whose + (shown < count && count > MOST_DRAWN ? `: the ${shown} of ${count} states that the word visits.` : `: ${count} state${count === 1 ? "" : "s"}.`)];
  if (isLanguage(subject.machine, subject.answers)) notes.push("Double circles match.");
  if (shown < count && count <= MOST_DRAWN) notes.push("A state that nothing comes of is left out.");
  $("machine-note").textContent = notes.join(" ");
  box.replaceChildren(picture);
  if (box.scrollWidth > box.clientWidth) box.scrollLeft = current * picture.clientWidth / width - box.clientWidth / 2;
}

function play() {
  if (now.timer) return stop();
  if (!now.word.length) return;
  if (now.t === now.word.length) goTo(0);
  now.timer = setInterval(() => (now.t < now.word.length ? goTo(now.t + 1) : stop()), 700);
  $("play").firstElementChild.textContent = "❚❚";
  $("play").setAttribute("aria-label", "Pause");
}

function stop() {
  clearInterval(now.timer);
  now.timer = null;
  $("play").firstElementChild.textContent = "▶";
  $("play").setAttribute("aria-label", "Play");
}

function hunt() { // the shortest beginning of any of some sampled words at whose end the network is wrong
  const { subject, network } = now;
  let best = null, tried = 0;
  for (const until = Date.now() + 4000; tried < 2000 && Date.now() < until; tried++) {
    const word = sampleWord(subject.machine, best ? best.length - 1 : 24), target = walkMachine(subject.machine, word);
    const at = network.run(word).findIndex((step, t) => target[t].asked && step.answer !== target[t].output);
    if (at >= 0) best = word.slice(0, at + 1);
    if (best && best.length === 1) break;
  }
  if (best) setWord(best, best.length);
  $("word-error").textContent = best ? `Wrong at the end of this word, one of ${tried} tried.` : `No mistake in ${tried} sampled words.`;
}

function typed() {
  try {
    setWord(readWord($("word").value, now.subject.symbols), Infinity, true);
  } catch (error) {
    $("word-error").textContent = error.message;
  }
}

function begin() {
  subjects.forEach((subject, place) => $("subject").append(element("option", { value: place }, subject.name)));
  $("subject").append(element("option", { value: REGEX }, "a regular expression…"));
  $("pattern").value = EXAMPLE;
  $("subject").addEventListener("change", () => choose($("subject").value));
  for (const id of ["pattern", "alphabet"]) $(id).addEventListener("input", chooseRegex);
  $("regex").addEventListener("submit", event => event.preventDefault());
  $("word").addEventListener("input", () => { stop(); typed(); });
  $("sample").addEventListener("click", () => sample());
  $("clear").addEventListener("click", () => setWord([], 0));
  $("hunt").addEventListener("click", hunt);
  $("all").addEventListener("change", () => goTo(now.t));
  $("slider").addEventListener("input", () => { stop(); goTo(+$("slider").value); });
  const moves = { first: () => goTo(0), back: () => goTo(now.t - 1), forward: () => goTo(now.t + 1), last: () => goTo(Infinity) };
  for (const [id, move] of Object.entries(moves)) $(id).addEventListener("click", () => { stop(); move(); });
  $("play").addEventListener("click", play);
  const keys = { ArrowLeft: "back", ArrowRight: "forward", Home: "first", End: "last", " ": "play" };
  document.addEventListener("keydown", event => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), select")) return;
    if (event.key === " " && event.target.matches("button, input")) return;
    event.preventDefault();
    $(keys[event.key]).click();
  });
  $("theme").addEventListener("click", () => {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = (root.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
  });
  choose(subjects.length ? 0 : ($("subject").value = REGEX));
  if (firstWord) {
    $("word").value = firstWord;
    typed();
  }
}

begin();
