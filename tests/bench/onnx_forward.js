// SPDX-License-Identifier: Apache-2.0
//
// onnx_forward.js FOLDER MODEL.onnx N,C,H,W THREADS PASSES: milliseconds of a forward pass in ONNX Runtime, median and best.
// FOLDER is where `npm install onnxruntime-node` was run. All of the runtime's optimizations of the graph are on.
"use strict";

function load(folder) {
  try {
    return require(require.resolve("onnxruntime-node", { paths: [folder] }));
  } catch (error) {
    console.error(`onnx_forward.js: no onnxruntime-node in ${folder}: run "npm install onnxruntime-node" there (${error.message})`);
    process.exit(2);
  }
}

async function main([folder, model, shape, threads, passes]) {
  const ort = load(folder);
  const session = await ort.InferenceSession.create(model, {
    executionProviders: ["cpu"],
    executionMode: "sequential",
    graphOptimizationLevel: "all",
    intraOpNumThreads: Number(threads),
    interOpNumThreads: 1,
  });
  const dims = shape.split(",").map(Number);
  const data = Float32Array.from({ length: dims.reduce((a, b) => a * b) }, (_, i) => Math.sin(i));
  const feeds = { [session.inputNames[0]]: new ort.Tensor("float32", data, dims) };
  const ms = [];
  for (let pass = -2; pass < Number(passes); pass++) {
    const start = process.hrtime.bigint();
    await session.run(feeds);
    if (pass >= 0) ms.push(Number(process.hrtime.bigint() - start) / 1e6);
  }
  ms.sort((a, b) => a - b);
  console.log(`ms per pass: median ${ms[ms.length >> 1].toFixed(2)} best ${ms[0].toFixed(2)}; ONNX Runtime ${ort.env.versions.node}`);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(`onnx_forward.js: ${error.message}`);
  process.exit(1);
});
