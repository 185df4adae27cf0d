// SPDX-License-Identifier: LGPL-3.0-or-later
//
// subscriber.mjs LIBRARY URL ADDRESS STALL PACE: an application as its authors would
// write it. It subscribes to new heads and to the logs of a contract. After the first
// head it blocks its event loop, for STALL milliseconds in one go (PACE stops) or for
// half a second with each log until then (PACE slow). It prints one JSON line for each
// thing that its library lets it see. It handles neither exceptions nor rejections, so
// that the exit code says whether the library lets one escape.

const [library, url, address, stall, pace] = process.argv.slice(2);
const begun = Date.now();

function say(what, more = {}) {
  console.log(JSON.stringify({ at: Date.now() - begun, what, ...more }));
}

const block = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

let stalled = false;
let slowUntil = 0;
function head(b) {
  if (b === undefined) return say("an undefined block");
  say("head", { number: Number(b.number ?? b) });
  if (stalled) return;
  stalled = true;
  setTimeout(() => {
    say("stops reading");
    if (pace === "slow") {
      slowUntil = Date.now() + Number(stall);
      return setTimeout(() => say("reads again"), Number(stall));
    }
    block(Number(stall));
    say("reads again");
  }, 1000);
}

function log(l) {
  say(l === undefined ? "an undefined log" : "log");
  if (Date.now() < slowUntil) block(500);
}

const short = (e) => String(e?.shortMessage ?? e?.message ?? e?.reason ?? JSON.stringify(e) ?? e).split("\n")[0].slice(0, 160);
const ends = (e) => say("close", { code: e.code, reason: String(e.reason), clean: e.wasClean });

const libraries = {
  async viem() {
    const { createPublicClient, webSocket } = await import("viem");
    const client = createPublicClient({ transport: webSocket(url) });
    client.watchBlocks({ onBlock: head, onError: (e) => say("onError of heads", { error: short(e) }) });
    client.watchEvent({ address, onLogs: (list) => list.forEach(log), onError: (e) => say("onError of logs", { error: short(e) }) });
    const rpc = await client.transport.getRpcClient(); // only to see what the library does not show
    rpc.socket.addEventListener("close", ends);
  },
  async ethers() {
    const { WebSocketProvider } = await import("ethers");
    const provider = new WebSocketProvider(url);
    provider.on("error", (e) => say("error event", { error: short(e) }));
    provider.on("block", head);
    provider.on({ address }, log);
    provider.websocket.addEventListener("close", ends);
  },
  async web3() {
    const { Web3, WebSocketProvider } = await import("web3");
    const provider = new WebSocketProvider(url, {}, { autoReconnect: true, delay: 1000, maxAttempts: 5 });
    const web3 = new Web3(provider);
    provider.on("disconnect", (e) => say("disconnect event", { error: short(e) }));
    provider.on("error", (e) => say("error event", { error: short(e) }));
    let connects = 0;
    provider.on("connect", () => connects++ && say("connect event again"));
    const heads = await web3.eth.subscribe("newHeads");
    heads.on("data", head);
    heads.on("error", (e) => say("error of heads", { error: short(e) }));
    const logs = await web3.eth.subscribe("logs", { address });
    logs.on("data", log);
    logs.on("error", (e) => say("error of logs", { error: short(e) }));
    provider.SocketConnection.addEventListener("close", ends);
  },
};

await libraries[library]();
