// Plots as SVG. Every figure keeps what it shows in `shown`.
"use strict";

const WIDTH = 460, HEIGHT = 260, LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 40;

// About five round numbers from low to high.
function ticks(low, high) {
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((step) => step >= rough);
  const out = [];
  for (let k = Math.ceil(low / step); k * step <= high + step / 1e6; k++) out.push(Number((k * step).toPrecision(10)));
  return out;
}

// Draws lines over x: lines are { name, y, style }, y with null where there is no value.
function lines(figure, { title, across, along, x, lines: all }) {
  figure.shown = { x, lines: all };
  const values = all.flatMap((line) => line.y).filter((y) => y !== null);
  let low = Math.min(0, ...values), high = Math.max(0, ...values);
  if (low === high) high = low + 1;
  const [first, last] = [x[0], x[x.length - 1]];
  const right = (v) => LEFT + ((v - first) / (last - first)) * (WIDTH - LEFT - RIGHT);
  const down = (v) => TOP + ((high - v) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${all.map((l) => l.name).join(", ")}, over ${across}` });
  for (const tick of ticks(low, high)) {
    svg.append(make("path", { class: tick === 0 ? "zero" : "axis", d: `M${LEFT} ${down(tick)}H${WIDTH - RIGHT}` }));
    svg.append(make("text", { x: LEFT - 6, y: down(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  for (const tick of ticks(first, last)) {
    svg.append(make("path", { class: "axis", d: `M${right(tick)} ${TOP}V${HEIGHT - BOTTOM}` }));
    svg.append(make("text", { x: right(tick), y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, short(tick)));
  }
  svg.append(make("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, across));
  const key = make("div", { class: "key" });
  all.forEach((line, i) => {
    let d = "", pen = "M";
    line.y.forEach((y, at) => {
      if (y === null) pen = "M";
      else { d += `${pen}${right(x[at]).toFixed(1)} ${down(y).toFixed(1)}`; pen = "L"; }
    });
    const style = `curve k${line.style ?? i}`;
    svg.append(make("path", { class: style, d }));
    key.append(make("span", {}, make("svg", { viewBox: "0 0 30 10", "aria-hidden": "true" }, make("path", { class: style, d: "M0 5H30" })), line.name));
  });
  const here = make("p", {}, along ?? "");
  const cursor = make("path", { class: "zero", d: "" });
  svg.append(cursor);
  // The value under the pointer, or where the arrow keys have moved to.
  let at = Math.floor(x.length / 2);
  const say = () => {
    cursor.setAttribute("d", `M${right(x[at])} ${TOP}V${HEIGHT - BOTTOM}`);
    here.textContent = `${across} ${short(x[at])}: ${all.map((line) => `${line.name} ${short(line.y[at])}`).join(", ")}`;
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), over = ((event.clientX - box.left) / box.width) * WIDTH;
    at = x.reduce((best, v, i) => (Math.abs(right(v) - over) < Math.abs(right(x[best]) - over) ? i : best), 0);
    say();
  });
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    at = Math.min(x.length - 1, Math.max(0, at + step));
    say();
  });
  figure.replaceChildren(make("figcaption", {}, title), key, svg, here);
}

// Bars around zero, scaled to `most`.
function bars(values, most, label) {
  const height = 64, width = 90, wide = width / values.length;
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.append(make("path", { class: "zero", d: `M0 ${height / 2}H${width}` }));
  values.forEach((value, i) => {
    const tall = Math.max(0.5, (Math.abs(value) / (most || 1)) * (height / 2 - 2));
    const y = value < 0 ? height / 2 : height / 2 - tall;
    svg.append(make("rect", { class: value < 0 ? "bar less" : "bar", x: i * wide + 0.5, y, width: Math.max(1, wide - 1), height: tall }));
  });
  return svg;
}

function histogram(figure, title, { range, counts }) {
  figure.shown = { range, counts };
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} 180`, role: "img", "aria-label": `${title}, from ${short(range[0])} to ${short(range[1])}` });
  const most = Math.max(1, ...counts), wide = (WIDTH - 20) / Math.max(1, counts.length);
  counts.forEach((count, i) => {
    const tall = (count / most) * 140;
    svg.append(make("rect", { class: "bar", x: 10 + i * wide, y: 150 - tall, width: wide - 1.5, height: tall }, make("title", {}, String(count))));
  });
  svg.append(make("path", { class: "zero", d: `M10 150H${WIDTH - 10}` }));
  svg.append(make("text", { x: 10, y: 170 }, short(range[0])), make("text", { x: WIDTH - 10, y: 170, "text-anchor": "end" }, short(range[1])));
  svg.append(make("text", { x: WIDTH / 2, y: 170, "text-anchor": "middle" }, `at most ${most} in a bar`));
  figure.replaceChildren(make("figcaption", {}, title), svg);
}
