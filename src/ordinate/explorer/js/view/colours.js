/** Colours: schemes by Okabe and Ito's palette, shares by one ramp, signed numbers by two, each from the background. */

export const SCHEMES = {
  none: {colour: "var(--scheme-none)", dash: "2 3"},
  sinusoidal: {colour: "var(--scheme-sinusoidal)", dash: "8 3"},
  learned: {colour: "var(--scheme-learned)", dash: "5 2 1 2"},
  rope: {colour: "var(--scheme-rope)", dash: ""},
  alibi: {colour: "var(--scheme-alibi)", dash: ""},
  t5: {colour: "var(--scheme-t5)", dash: "10 2"},
};

/** Colours in turn for lines that are no schemes. */
export const SERIES = ["rope", "t5", "alibi", "learned", "sinusoidal", "none"].map((name) => SCHEMES[name].colour);

const LIGHT = {
  share: [
    [255, 255, 255],
    [198, 219, 239],
    [107, 174, 214],
    [33, 113, 181],
    [8, 48, 107],
  ],
  signed: [
    [0, 90, 160],
    [107, 170, 220],
    [255, 255, 255],
    [243, 168, 92],
    [180, 80, 0],
  ],
};
const DARK = {
  share: [
    [27, 32, 40],
    [24, 62, 100],
    [33, 113, 181],
    [107, 174, 214],
    [222, 238, 250],
  ],
  signed: [
    [130, 200, 250],
    [40, 100, 150],
    [27, 32, 40],
    [150, 84, 20],
    [255, 180, 90],
  ],
};

/** Whether the page is dark now. */
export function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** [red, green, blue] of a place on a ramp, 0 to 1. */
export function rampColour(kind, place, dark = isDark()) {
  const stops = (dark ? DARK : LIGHT)[kind],
    at = Math.min(1, Math.max(0, place)) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2),
    part = at - low;
  return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * part));
}
