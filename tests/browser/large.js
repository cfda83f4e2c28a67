"use strict";
/* A page of 240 runs has them all. */
const n = document.querySelectorAll("#runs tbody tr").length;
const text = faults.length > 0 ? "failed: " + faults.join("; ") : n !== 240 ? `failed: ${n} runs` : "ok, 240 runs";
document.body.append(make("pre", {id: "tested"}, text));
