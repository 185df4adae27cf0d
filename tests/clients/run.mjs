// SPDX-License-Identifier: LGPL-3.0-or-later
//
// run.mjs GETH [--only LIBRARY] [--drops] [--pace stops|slow] [--json]: what viem, ethers
// and web3.js do when the node drops them as slow subscribers, in both modes, and when it
// refuses their calls over HTTP. docs/CLIENTS.md holds what was seen.
//
//	cd tests/clients && npm install --ignore-scripts --no-package-lock
//	node run.mjs ../../build/bin/geth
//
// Everything is on loopback, takes some eight minutes, and is bounded: a dev chain with
// a block a second, whose subscribers may have 4 events waiting; a contract that emits
// 600 KB of logs a call, called once a second while the subscriber does not read, or
// reads slowly; subscribers that are ended 25 s after they read again. The refusals are
// answered by a stand-in that sends what the node sends, so that their number is exact.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import os from "node:os";
import path from "node:path";

const geth = process.argv[2];
if (!geth || geth.startsWith("--")) {
  console.error("usage: node run.mjs GETH [--only viem|ethers|web3] [--drops] [--pace stops|slow] [--json]");
  process.exit(2);
}
function only(flag) {
  const i = process.argv.indexOf(flag);
  return i < 0 ? undefined : process.argv[i + 1];
}
const libraries = only("--only") ? [only("--only")] : ["viem", "ethers", "web3"];
const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const stall = 15000;
const after = 25000;
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

async function freePort() {
  const s = net.createServer().listen(0, "127.0.0.1");
  await new Promise((r) => s.once("listening", r));
  const { port } = s.address();
  await new Promise((r) => s.close(r));
  return port;
}

// ipc sends one call over the node's own endpoint, which nothing here slows down.
function ipc(file, method, ...params) {
  return new Promise((resolve, reject) => {
    let text = "";
    const s = net.createConnection(file, () => s.write(JSON.stringify({ jsonrpc: "2.0", id: 1, method, params })));
    s.on("data", (d) => {
      text += d;
      try {
        const m = JSON.parse(text);
        s.end();
        m.error ? reject(new Error(m.error.message)) : resolve(m.result);
      } catch {} // not whole yet
    });
    s.on("error", reject);
  });
}

async function startNode(overflow) {
  const dir = mkdtempSync(path.join(os.tmpdir(), "clients-"));
  const port = await freePort();
  const file = path.join(dir, "geth.ipc");
  const child = spawn(geth, ["--dev", "--dev.period", "1", "--datadir", dir, "--ipcpath", file, "--nodiscover", "--maxpeers", "0",
    "--port", "0", "--authrpc.port", "0", "--verbosity", "3", "--ws", "--ws.addr", "127.0.0.1", "--ws.port", String(port), "--ws.api", "eth,net,web3",
    "--rpc.sub.overflow", overflow, "--rpc.sub.events", "4"], { stdio: ["ignore", "ignore", "pipe"] });
  const drops = [];
  child.stderr.on("data", (d) => drops.push(...String(d).split("\n").filter((l) => /[Ss]ubscri/.test(l))));
  const stop = async () => {
    child.kill();
    await new Promise((r) => child.exitCode !== null ? r() : child.once("exit", r));
    rmSync(dir, { recursive: true, force: true });
  };
  for (let i = 0; ; i++) {
    try {
      await ipc(file, "eth_blockNumber");
      break;
    } catch (e) {
      if (i === 300 || child.exitCode !== null) {
        await stop();
        throw new Error(`geth did not answer: ${e.message}`);
      }
      await sleep(200);
    }
  }
  const [from] = await ipc(file, "eth_accounts");
  // LOG0 of 30000 bytes, ten times, then stop.
  const code = "617530" + "6000" + "a0";
  const runtime = code.repeat(10) + "00";
  const size = (runtime.length / 2).toString(16).padStart(2, "0");
  const init = `60${size}600c60003960${size}6000f3${runtime}`;
  const hash = await ipc(file, "eth_sendTransaction", { from, data: "0x" + init, gas: "0x100000" });
  let receipt;
  while (!receipt) {
    await sleep(300);
    receipt = await ipc(file, "eth_getTransactionReceipt", hash);
  }
  const emit = () => ipc(file, "eth_sendTransaction", { from, to: receipt.contractAddress, gas: "0x500000" });
  return { url: `ws://127.0.0.1:${port}`, address: receipt.contractAddress, emit, stop, drops };
}

async function subscriber(library, overflow, pace) {
  const node = await startNode(overflow);
  try {
    const child = spawn(process.execPath, ["subscriber.mjs", library, node.url, node.address, String(stall), pace], { cwd: here });
    const lines = [];
    let rest = "", errors = "", exit = null;
    child.stdout.on("data", (d) => {
      const parts = (rest + d).split("\n");
      rest = parts.pop();
      for (const l of parts) lines.push(l.startsWith("{") ? JSON.parse(l) : { what: "printed", text: l.slice(0, 120) });
    });
    child.stderr.on("data", (d) => (errors += d));
    const gone = new Promise((r) => child.once("exit", (code) => r((exit = code))));
    const saw = async (what, ms) => {
      for (const end = Date.now() + ms; Date.now() < end && exit === null; await sleep(100)) {
        if (lines.some((l) => l.what === what)) return;
      }
    };
    await saw("stops reading", 20000);
    for (const end = Date.now() + stall - 4000; Date.now() < end; await sleep(900)) await node.emit();
    await saw("reads again", 20000);
    for (const end = Date.now() + after; Date.now() < end && exit === null; await sleep(3000)) await node.emit();
    const died = exit;
    child.kill();
    await gone;
    return { library, overflow, pace, ...digest(lines), died, errors: firstError(errors), drops: node.drops };
  } finally {
    await node.stop();
  }
}

const firstError = (text) => text.split("\n").find((l) => /Error/.test(l))?.trim() ?? "";

// digest says of the lines of a subscriber what matters: what it was told, and whether
// heads and logs went on.
function digest(lines) {
  const resumed = lines.find((l) => l.what === "reads again")?.at ?? Infinity;
  const late = (what) => lines.filter((l) => l.what === what && l.at > resumed + 8000).length;
  const heads = lines.filter((l) => l.what === "head").map((l) => l.number);
  let missed = 0;
  for (let i = 1; i < heads.length; i++) missed += Math.max(0, heads[i] - heads[i - 1] - 1);
  return {
    told: lines.filter((l) => !["head", "log", "stops reading", "reads again"].includes(l.what))
      .map(({ at, ...l }) => ({ after: at - resumed, ...l })),
    headsLater: late("head"), logsLater: late("log"), headsMissed: missed,
  };
}

const refusals = [
  ["429, -32013 (the default)", 429, { code: -32013, message: "Request queue is full" }, {}],
  ["200, -32013", 200, { code: -32013, message: "Request queue is full" }, {}],
  ["429, -32005", 429, { code: -32005, message: "Request queue is full" }, {}],
  ["503, -32013", 503, { code: -32013, message: "Request queue is full" }, {}],
  ["503, -32005, Retry-After: 1 (budget full)", 503,
    { code: -32005, message: "request budget is full", data: { wanted: 65536, available: 0, limit: 67108864 } }, { "Retry-After": "1" }],
];

// refuse has a library ask a server that refuses what comes in the first 1.5 s.
async function refuse(library, [name, status, error, headers]) {
  const times = [];
  const server = http.createServer((req, res) => {
    let body = "";
    req.on("data", (d) => (body += d));
    req.on("end", () => {
      const message = JSON.parse(body);
      const now = Date.now();
      times.push(now);
      const one = (m) => (now - times[0] < 1500 ? { jsonrpc: "2.0", id: m.id ?? null, error } : { jsonrpc: "2.0", id: m.id, result: "0x1" });
      const refused = now - times[0] < 1500;
      res.writeHead(refused ? status : 200, { "Content-Type": "application/json", ...(refused ? headers : {}) });
      res.end(JSON.stringify(Array.isArray(message) ? message.map(one) : one(message)));
    });
  }).listen(0, "127.0.0.1");
  await new Promise((r) => server.once("listening", r));
  const child = spawn(process.execPath, ["refused.mjs", library, `http://127.0.0.1:${server.address().port}`], { cwd: here });
  let out = "";
  child.stdout.on("data", (d) => (out += d));
  await new Promise((r) => child.once("exit", r));
  server.closeAllConnections();
  await new Promise((r) => server.close(r));
  return { library, refusal: name, attempts: times.length, gaps: times.slice(1).map((t, i) => t - times[i]), ...JSON.parse(out.trim().split("\n").pop()) };
}

const print = (x) => console.log(process.argv.includes("--json") ? JSON.stringify(x) : x);
for (const library of libraries) {
  if (!process.argv.includes("--drops")) for (const r of refusals) print(await refuse(library, r));
  for (const [overflow, pace] of [["close", "stops"], ["close", "slow"], ["unsubscribe", "stops"]]) {
    if (!only("--pace") || only("--pace") === pace) print(await subscriber(library, overflow, pace));
  }
}
