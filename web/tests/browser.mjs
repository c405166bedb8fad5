// The site in Chromium, from the disk: node browser.mjs SITE PROGRAM REPOSITORY MODULES PICTURES, where PROGRAM is
// `site` of this crate, which answers natively what the page answers, and MODULES holds node_modules.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [site, program, repository, modules, pictures] = process.argv.slice(2);
const require = createRequire(join(modules, "here.js"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core"), "utf8");

const natively = (request, file) => execFileSync(program, file ? ["answer", file] : ["answer"], { input: JSON.stringify(request), maxBuffer: 1 << 26 }).toString();
const published = (file) => readFileSync(join(repository, file), "utf8").trim();
const names = readdirSync(join(site, "recipe")).map((file) => file.replace(".html", ""));

rmSync(pictures, { recursive: true, force: true });
mkdirSync(pictures, { recursive: true });
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
const faults = [];
context.on("page", (page) => {
  page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) faults.push(`a request to ${request.url()}`); });
  page.on("pageerror", (error) => faults.push(`${page.url()}: ${error.message}`));
  page.on("console", (message) => { if (message.type() === "error") faults.push(`${page.url()}: ${message.text()}`); });
});
const page = await context.newPage();
const open = (file) => page.goto(pathToFileURL(site) + "/" + file);
const shown = (selector) => page.waitForFunction((s) => document.querySelector(s)?.shown, selector).then((found) => found.jsonValue());
const ask = (request) => page.evaluate((asked) => ask(asked).then((ok) => ({ ok }), (error) => ({ error: error.message })), request);

let count = 0;
async function check(what, work) {
  const begun = performance.now();
  try {
    const said = await work();
    count += 1;
    console.log(`ok  ${what}${said ? `: ${said}` : ""} (${((performance.now() - begun) / 1000).toFixed(1)} s)`);
  } catch (error) {
    console.error(`FAILED  ${what}`);
    await browser.close();
    throw error;
  }
}

await check("sizes", () => {
  const largest = Math.max(...readdirSync(site).map((file) => statSync(join(site, file)).size));
  const parts = readdirSync(site).filter((file) => file.startsWith("module")).map((file) => readFileSync(join(site, file), "utf8"));
  const module = parts.join("").match(/"[^"]*"/g).reduce((sum, text) => sum + (text.length - 2) * 0.75, 0);
  assert(largest <= 2e6 && module <= 1.5e6, `${largest}, ${module}`);
  return `largest file ${largest} bytes, module ${Math.round(module)} bytes compressed`;
});

await check("the published digests of corpus and recipes", async () => {
  await open("machine.html");
  await page.click("#compute");
  for (const [title, file] of [["corpus", "embedded/DIGEST"], ["recipes", "conformance/RECIPES_DIGEST"]]) {
    const cells = page.locator(`[data-digest=${title}] td`);
    await cells.nth(2).waitFor({ timeout: 120_000 });
    assert.equal(await cells.nth(0).textContent(), published(file));
    assert.equal(await cells.nth(2).textContent(), "the same");
  }
});

await check("both calls of every recipe, alone, have the native bits", async () => {
  await open("compare.html");
  await page.evaluate(() => script("recipes.js"));
  const listed = await page.evaluate(() => LOCKSTEP.recipes.map(({ name, digest }) => [name, digest]));
  assert.deepEqual(listed.map(([name]) => name).sort(), names.toSorted());
  for (const [name, digest] of listed) assert.equal((await ask({ ask: "recipes", names: [name] })).ok.digest, digest, name);
  return `${listed.length} recipes`;
});

await check("every plot of every recipe has the library's bits", async () => {
  for (const recipe of names) {
    for (const request of [{ ask: "settings", recipe }, { ask: "curve", recipe }, { ask: "drift", recipe }, { ask: "group", recipe, rewards: [1, 0, 0.5, 0, 0, 0.5, 0, 1] }]) {
      const [here, there] = [await ask(request), JSON.parse(natively(request))];
      assert.deepEqual(here, there, `${recipe}: ${request.ask}`);
      assert.ok(here.ok, `${recipe}: ${here.error}`);
    }
  }
});

await check("search, filters, and a page opened from the keyboard", async () => {
  await open("index.html");
  const visible = () => page.locator("#recipes li:visible").evaluateAll((items) => items.map((item) => item.dataset.name));
  assert.equal((await visible()).length, names.length);
  await page.check("#critic");
  assert((await visible()).includes("ppo_critic") && !(await visible()).includes("grpo"));
  await page.uncheck("#critic");
  await page.selectOption("#framework", "TRL");
  assert((await visible()).every((name) => name.startsWith("trl")) && (await visible()).length > 5);
  await page.selectOption("#framework", "");
  await page.fill("#search", "soft gate place clip");
  assert.deepEqual(await visible(), ["sapo"]);
  await page.locator("#recipes li:visible a").focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(/recipe\/sapo\.html$/);
  assert.equal(await page.textContent("h1"), "sapo");
});

await check("a slider moves the plot to the library's bits at five points", async () => {
  const before = (await shown("#coef")).lines[0].y;
  const slider = page.locator("[data-path='gate.tau_pos']");
  await slider.focus();
  for (let i = 0; i < 12; i++) await page.keyboard.press("ArrowRight");
  const value = Number(await slider.inputValue());
  assert(value > 1);
  const moved = (old) => JSON.stringify(document.querySelector("#coef").shown.lines[0].y) !== old;
  await page.waitForFunction(moved, JSON.stringify(before));
  const { ok } = JSON.parse(natively({ ask: "curve", recipe: "sapo", set: { "gate.tau_pos": value } }));
  await page.waitForFunction((last) => document.querySelector("#coef").shown.lines[0].y.at(-1) === last, ok.positive.coef.at(-1));
  const [loss, coef] = [await shown("#loss"), await shown("#coef")];
  const bits = (x) => Buffer.from(new Float64Array([x]).buffer).toString("hex");
  for (const at of [0, 40, 80, 120, 160]) {
    assert.equal(bits(coef.lines[0].y[at]), bits(ok.positive.coef[at]));
    assert.equal(bits(loss.lines[0].y[at]), bits(ok.positive.loss[at]));
    assert.notEqual(coef.lines[0].y[at], before[at], `point ${at} did not move`);
  }
  assert((await page.textContent("#toml")).includes(String(Math.fround(value)).slice(0, 4)), "the text to copy follows");
  for (const text of ["#python", "#rust"]) assert((await page.textContent(text)).includes("recipe.toml"), `${text} has the named recipe`);
  await page.fill("[aria-label='gate.tau_pos, exactly']", "-1");
  await page.waitForFunction(() => document.querySelector("#error").textContent.includes("tau"));
  const refused = JSON.parse(natively({ ask: "curve", recipe: "sapo", set: { "gate.tau_pos": -1 } })).error;
  assert.equal(await page.textContent("#error"), refused);
});

await check("a clicked reward changes the advantages", async () => {
  await open("recipe/dapo.html");
  const before = await shown("#group");
  await page.click("#group button >> nth=1");
  await page.waitForFunction((old) => JSON.stringify(document.querySelector("#group").shown) !== old, JSON.stringify(before));
  const { ok } = JSON.parse(natively({ ask: "group", recipe: "dapo", rewards: [1, 0.5, 1, 0, 0, 1, 0, 1] }));
  assert.deepEqual((await shown("#group")).advantage, ok.advantage);
  await page.click("#compute");
  await page.waitForFunction(() => document.querySelector("#computed").textContent === "the same bits");
});

await check("two recipes side by side", async () => {
  await open("index.html");
  for (const name of ["dapo", "sapo"]) await page.check(`[data-name=${name}] input`);
  await page.click("#compare");
  await page.waitForFunction(() => document.querySelectorAll("#curves figure").length === 4);
  assert.deepEqual(await page.locator("#table th[scope=col]").allTextContents(), ["dapo", "sapo"]);
  const differing = await page.locator("#table tr.differs th").allTextContents();
  assert(differing.includes("gate") && !differing.includes("ratio"), String(differing));
  const { lines } = await page.evaluate(() => document.querySelector("#curves figure").shown);
  const one = JSON.parse(natively({ ask: "curve", recipe: "sapo" })).ok;
  assert.deepEqual(lines[1].y, one.positive.loss);
});

await check("a tree and a router", async () => {
  await open("explore.html");
  const tree = await shown("#tree");
  assert.equal(tree.nodes[0].value, 0.5);
  await page.fill("#responses", "1 ab\n0 ac\nx");
  await page.waitForFunction(() => document.querySelector("#tree-error").textContent.startsWith("line 3"));
  await page.fill("#responses", "1 ab\n0 ac\n0 ad\n");
  await page.waitForFunction(() => document.querySelector("#tree").shown.nodes.length === 4);
  assert.deepEqual((await shown("#tree")), JSON.parse(natively({ ask: "tree", responses: ["ab", "ac", "ad"], rewards: [1, 0, 0] })).ok);
  const routed = await shown("#router");
  assert.equal(routed.differing[1], 0);
  assert(routed.differing[0] > 0);
});

const drop = (bytes) => page.evaluate((bytes) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], "mine.safetensors"));
  document.querySelector("#drop").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}, [...bytes]);
await check("a dropped file, and the library's own errors about bad ones", async () => {
  const file = join(pictures, "dapo.safetensors");
  execFileSync(program, ["rollouts", "dapo", file]);
  const bytes = readFileSync(file);
  await open("rollouts.html");
  await drop(bytes);
  const scored = await shown("#scored");
  assert.deepEqual(scored, JSON.parse(natively({ ask: "file", recipe: "dapo" }, file)).ok);
  assert(scored.advantage.counts.reduce((a, b) => a + b) > 0 && scored.ratio);
  await page.screenshot({ path: join(pictures, "rollouts.png"), fullPage: true });
  const says = async (recipe, bytes, part) => {
    const bad = join(pictures, "bad.safetensors");
    writeFileSync(bad, bytes);
    await page.selectOption("#recipe", recipe);
    await drop(bytes);
    const { error } = JSON.parse(natively({ ask: "file", recipe }, bad));
    assert(error.includes(part), error);
    await page.waitForFunction((error) => document.querySelector("#error").textContent === error, error);
    rmSync(bad);
  };
  await says("dapo", bytes.subarray(0, bytes.length - 3), "not a complete safetensors file");
  await says("verl_tis_token", bytes, "logp_rollout");
  rmSync(file);
});

await check("first paint, and what a screen reader needs, in light and dark, wide and on a phone", async () => {
  const paints = {}, pages = ["index", "compare", "explore", "rollouts", "machine", "recipe/ppo_critic"];
  for (const [colorScheme, width] of [["light", 1280], ["dark", 1280], ["light", 390]]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 900 });
    for (const name of pages) {
      await open(name === "compare" ? "compare.html#grpo,dapo,sapo,gspo" : `${name}.html`);
      await page.reload();
      const paint = await page.waitForFunction(() => performance.getEntriesByName("first-paint")[0]?.startTime);
      paints[name] = Math.min(paints[name] ?? Infinity, await paint.jsonValue());
      if (name.startsWith("recipe")) await shown("#drift");
      if (name === "compare") await page.waitForFunction(() => document.querySelectorAll("#curves figure").length === 4);
      if (name === "explore") await shown("#router");
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert(wide <= width, `${name} is ${wide} wide on ${width}`);
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run({ preload: false }));
      assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes[0].html]), [], `${name}, ${colorScheme}, ${width}`);
      const picture = `${name.replace("/", "-")}-${colorScheme}-${width}.png`;
      await page.screenshot({ path: join(pictures, picture), fullPage: name !== "index" });
    }
  }
  // 200 ms of a machine that does nothing else: programs that wait for its processors take their share.
  const all = Object.values(paints).map(Math.round), share = Math.max(1, loadavg()[0] / cpus().length);
  const said = `first paint after ${Math.min(...all)} to ${Math.max(...all)} ms, the processors ${share.toFixed(1)} times taken`;
  assert(Math.max(...all) < 200 * share, said);
  return said;
});

await browser.close();
assert.deepEqual(faults, []);
console.log(`${count} passed, 0 skipped; no request but to files`);
