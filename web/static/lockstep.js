// The library in this page: its bytes are in scripts beside it, because a page from a disk may read nothing else.
"use strict";

globalThis.LOCKSTEP = { module: [], launches: [], recipes: [] };
const page = document.documentElement.dataset;
const find = (selector) => document.querySelector(selector);

// Makes an element: attributes, listeners ("onclick"), then children.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "text", "rect", "line", "title", "g"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function script(file) {
  return new Promise((done, failed) => {
    document.head.append(make("script", { src: page.root + file, onload: done, onerror: () => failed(new Error(`${file} is missing`)) }));
  });
}

// The bytes in the scripts of this name.
async function packed(name) {
  for (const part of page[name].split(" ")) await script(part);
  const bytes = Uint8Array.from(atob(LOCKSTEP[name].join("")), (c) => c.charCodeAt(0));
  LOCKSTEP[name] = [];
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

let loading;
function load() {
  loading ??= (async () => {
    // The page paints first.
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const { instance } = await WebAssembly.instantiate(await packed("module"));
    return instance.exports;
  })();
  return loading;
}

// Asks the library. Throws an error with its message.
async function ask(request, file = new Uint8Array()) {
  const { memory, room, answer, answered } = await load();
  const json = new TextEncoder().encode(JSON.stringify(request));
  const at = room(4 + json.length + file.length);
  new DataView(memory.buffer).setUint32(at, json.length, true);
  const bytes = new Uint8Array(memory.buffer);
  bytes.set(json, at + 4);
  bytes.set(file, at + 4 + json.length);
  const from = answer();
  const said = JSON.parse(new TextDecoder().decode(new Uint8Array(memory.buffer, from, answered())));
  if (said.error !== undefined) throw new Error(said.error);
  return said.ok;
}

// Runs `work`, and shows its error or none. A newer call of the same place wins.
const turns = new Map();
async function guarded(place, work) {
  const turn = (turns.get(place) ?? 0) + 1;
  turns.set(place, turn);
  const stale = () => turns.get(place) !== turn;
  try {
    await work(stale);
    if (!stale()) place.textContent = "";
  } catch (error) {
    if (!stale()) place.textContent = error.message;
  }
}

// Numbers as people read them: counts in full.
const short = (x) => (x === null || Number.isNaN(x) ? "–" : String(Number.isInteger(x) ? x : Number(x.toPrecision(4))));

document.addEventListener("click", async ({ target }) => {
  const id = target.dataset?.copies;
  if (id === undefined) return;
  const text = document.getElementById(id).textContent;
  try {
    await navigator.clipboard.writeText(text);
    target.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(document.getElementById(id));
    target.textContent = "Selected";
  }
  setTimeout(() => { target.textContent = "Copy"; }, 1500);
});
