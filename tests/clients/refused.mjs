// SPDX-License-Identifier: LGPL-3.0-or-later
//
// refused.mjs LIBRARY URL: asks for one balance over HTTP and prints how that ended.

const [library, url] = process.argv.slice(2);
const account = "0x00000000000000000000000000000000000000aa";

const libraries = {
  async viem() {
    const { createPublicClient, http } = await import("viem");
    return createPublicClient({ transport: http(url) }).getBalance({ address: account });
  },
  async ethers() {
    const { JsonRpcProvider, Network } = await import("ethers");
    const provider = new JsonRpcProvider(url, 1337, { staticNetwork: Network.from(1337) });
    return provider.getBalance(account);
  },
  async web3() {
    const { Web3 } = await import("web3");
    return new Web3(url).eth.getBalance(account);
  },
};

const begun = Date.now();
const guard = setTimeout(() => done({ ended: "nothing after 60 s" }), 60000);
function done(what) {
  clearTimeout(guard);
  console.log(JSON.stringify({ ms: Date.now() - begun, ...what }));
  process.exit(0);
}
try {
  done({ ended: "result", value: String(await libraries[library]()) });
} catch (e) {
  const code = e?.info?.error?.code ?? e?.error?.code ?? e?.cause?.code ?? e?.innerError?.code ?? e?.code;
  done({ ended: "error", name: e?.name, code, text: String(e?.shortMessage ?? e?.message ?? e).split("\n")[0].slice(0, 160) });
}
