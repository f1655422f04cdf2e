// Runs every model of a folder in onnxruntime-web (WebAssembly): node web.mjs FOLDER [NAME...], with node_modules beside
// or in NODE_PATH. cases.py says what is read and written.
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";

const require = createRequire(path.join(process.cwd(), "x.js"));
const ort = require("onnxruntime-web");
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "fatal";

const TYPES = {
  float32: Float32Array, float64: Float64Array, int32: Int32Array, uint32: Uint32Array, int8: Int8Array,
  uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int64: BigInt64Array, uint64: BigUint64Array,
  bool: Uint8Array,
};

function inputs(base) {
  const bytes = fs.readFileSync(base + ".bin");
  const feeds = {};
  for (const line of fs.readFileSync(base + ".case", "utf8").trim().split("\n")) {
    const [kind, name, type, sizes, offset] = line.split(" ");
    if (kind !== "input") continue;
    const shape = sizes === "-" ? [] : sizes.split(",").map(Number);
    const count = shape.reduce((a, b) => a * b, 1);
    const Kind = TYPES[type];
    const start = Number(offset);
    const copy = bytes.buffer.slice(bytes.byteOffset + start, bytes.byteOffset + start + count * Kind.BYTES_PER_ELEMENT);
    feeds[name] = new ort.Tensor(type, new Kind(copy), shape);
  }
  return feeds;
}

async function run(base) {
  const session = await ort.InferenceSession.create(new Uint8Array(fs.readFileSync(base + ".onnx")));
  const results = await session.run(inputs(base));
  let offset = 0, table = "";
  const pieces = [];
  session.outputNames.forEach((name, index) => {
    const value = results[name];
    table += `output ${index} ${value.type} ${value.dims.join(",") || "-"} ${offset}\n`;
    const piece = Buffer.from(value.data.buffer, value.data.byteOffset, value.data.byteLength);
    pieces.push(piece);
    offset += piece.length;
  });
  fs.writeFileSync(base + ".got", table);
  fs.writeFileSync(base + ".got.bin", Buffer.concat(pieces));
}

const [folder, ...chosen] = process.argv.slice(2);
const names = chosen.length ? chosen
  : fs.readdirSync(folder).filter((entry) => entry.endsWith(".case")).map((entry) => entry.slice(0, -5));
for (const name of names) {
  const base = path.join(folder, name);
  try {
    await run(base);
  } catch (error) {
    fs.writeFileSync(base + ".error", String(error && error.message ? error.message : error));
  }
}
