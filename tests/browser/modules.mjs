// Makes a program of TypeScript loadable in a browser. Reads it from the standard input. Prints JSON: the program without its
// types, and an import map of the packages that it loads, directly or not, with paths below `node_modules`.
import { text } from "node:stream/consumers";
import { registerHooks, stripTypeScriptTypes } from "node:module";

const code = stripTypeScriptTypes(await text(process.stdin));
// Modules that packages have for Node.js take the browser's object from here.
const imports = { "node:crypto": "data:text/javascript,export const webcrypto = crypto" };
registerHooks({
  resolve(specifier, context, next) {
    const resolved = next(specifier, context);
    if (!/^[./]|^\w+:/.test(specifier)) imports[specifier] ??= resolved.url.replace(/^.*?(?=\/node_modules\/)/, "");
    return resolved;
  },
});
for (const [, name] of code.matchAll(/ from "([^"]+)"/g)) await import(name);
console.log(JSON.stringify({ code, imports }));
