// Node reads its list of processors from /proc/stat, which a cell has not: os.cpus() would be empty, and programs that
// start a worker for each would start none. Here it has as many entries as there are processors to run on.
"use strict";
const os = require("os");
if (os.cpus().length === 0 && typeof os.availableParallelism === "function") {
  const times = { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 };
  const processor = () => ({ model: "unknown", speed: 0, times: { ...times } });
  os.cpus = () => Array.from({ length: os.availableParallelism() }, processor);
  require("module").syncBuiltinESMExports();
}
