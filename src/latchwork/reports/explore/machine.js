"use strict";
// Walks on a Mealy machine: { transitions, outputs, start, noAnswer }.

// The state before and after each symbol of a word, the output, and whether an answer is asked for.
function walkMachine(machine, word) {
  let state = machine.start;
  return word.map(symbol => {
    const before = state, output = machine.outputs[before][symbol];
    state = machine.transitions[before][symbol];
    return { before, after: state, output, asked: output !== machine.noAnswer };
  });
}

// For each state, whether a word may still come to something there: an answer that is asked for, or an accepting one.
function liveStates(machine) {
  const counts = output => machine.noAnswer === null ? output !== 0 : output !== machine.noAnswer;
  const live = machine.outputs.map(row => row.some(counts));
  for (let grown = true; grown;) {
    grown = false;
    machine.transitions.forEach((row, state) => {
      if (!live[state] && row.some(to => live[to])) grown = live[state] = true;
    });
  }
  return live;
}

// A word of the machine: symbols drawn evenly from those that lead on; where none does, the word ends.
function sampleWord(machine, length, random = Math.random) {
  const live = liveStates(machine), word = [];
  let state = machine.start;
  while (word.length < length) {
    const row = machine.transitions[state];
    let choice = row.map((_, symbol) => symbol);
    const asked = symbol => machine.noAnswer !== null && machine.outputs[state][symbol] !== machine.noAnswer;
    const good = choice.filter(symbol => live[row[symbol]] || asked(symbol));
    if (machine.noAnswer !== null || random() < 0.9) choice = good;
    if (!choice.length) break;
    const symbol = choice[Math.floor(random() * choice.length)];
    word.push(symbol);
    state = row[symbol];
  }
  return word;
}

// Arrows: from each state to each of its successors, the symbols; where answers are given with their output, as "a, c…f / 1".
function arrowsOf(machine, symbols, answers) {
  const found = new Map();
  machine.transitions.forEach((row, from) => row.forEach((to, symbol) => {
    const key = from + ">" + to, output = answers ? machine.outputs[from][symbol] : machine.noAnswer;
    if (!found.has(key)) found.set(key, { from, to, outputs: new Map() });
    const outputs = found.get(key).outputs;
    outputs.set(output, [...(outputs.get(output) || []), symbol]);
  }));
  return [...found.values()].map(({ from, to, outputs }) => ({
    from, to,
    labels: [...outputs].map(([output, numbers]) =>
      severalNames(symbols, numbers) + (output === machine.noAnswer ? "" : " / " + (answers[output] ?? output))),
  }));
}

function severalNames(names, numbers) {
  const words = [];
  for (let k = 0; k < numbers.length;) {
    let end = k;
    while (numbers[end + 1] === numbers[end] + 1) end += 1;
    if (end - k > 1) words.push(names[numbers[k]] + "…" + names[numbers[end]]);
    else for (let n = k; n <= end; n++) words.push(names[numbers[n]]);
    k = end + 1;
  }
  return words.length > 4 ? words.slice(0, 3).join(", ") + ", …" : words.join(", ");
}

// The symbols of a typed word; text: names one after the other where all are single letters, else with spaces between.
function readWord(text, symbols) {
  const trimmed = text.trim();
  if (!trimmed) return [];
  const single = symbols.every(each => each.length === 1);
  const parts = single ? [...trimmed.replace(/[\s,]+/g, "")] : trimmed.split(/[\s,]+/).filter(Boolean);
  return parts.map(part => {
    const number = symbols.indexOf(part);
    if (number < 0) throw new Error(`“${part}” is no symbol here`);
    return number;
  });
}

const writeWord = (word, symbols) => word.map(each => symbols[each]).join(symbols.every(each => each.length === 1) ? "" : " ");
