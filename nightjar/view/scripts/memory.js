// What a browser keeps for the reader: in this tab, or for all visits. Where storage is not permitted, even looking at
// it fails: then nothing is kept.
const memory = (kind) => ({
  get(name) {
    try {
      return JSON.parse(window[kind][name] ?? "null");
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      window[kind][name] = JSON.stringify(value);
    } catch {}
  },
});
const ofTab = memory("sessionStorage");
const ofReader = memory("localStorage");
