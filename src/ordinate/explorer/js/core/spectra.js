/** RoPE angular frequencies and the ways of scaling them for longer texts. */

/** theta^(-2m / width) of each channel pair [radians a token]. */
export function plainRates(width, theta) {
  return Array.from({length: width / 2}, (_, m) => theta ** ((-2 * m) / width));
}

/** Position interpolation (Chen et al. 2023): all rates divided by the factor. */
export function linearRates(width, theta, factor) {
  return plainRates(width, theta).map((rate) => rate / factor);
}

/** NTK-aware scaling (bloc97 2023): a larger base, so that only the lowest rate is divided by the whole factor. */
export function ntkRates(width, theta, factor) {
  return plainRates(width, theta * factor ** (width / (width - 2)));
}

/** YaRN (Peng et al. 2023): rates of few turns within the trained length divided, those of many unchanged. */
export function yarnRates(width, theta, factor, trained, fast = 32, slow = 1) {
  const pairOf = (turns) => (width * Math.log(trained / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  const low = Math.max(Math.floor(pairOf(fast)), 0),
    high = Math.min(Math.ceil(pairOf(slow)), width - 1);
  const over = high - low || 0.001;
  return plainRates(width, theta).map((rate, m) => {
    const share = Math.min(Math.max((m - low) / over, 0), 1);
    return rate * (share / factor + 1 - share);
  });
}

/** YaRN's attention factor: rotated queries and keys are multiplied by it. */
export function yarnMagnitude(factor) {
  return factor > 1 ? 0.1 * Math.log(factor) + 1 : 1;
}

/** Llama 3.1: rates below `low` turns within the trained length divided, above `high` unchanged, linear between. */
export function llama3Rates(width, theta, factor, trained, low = 1, high = 4) {
  return plainRates(width, theta).map((rate) => {
    const kept = Math.min(Math.max(((trained * rate) / (2 * Math.PI) - low) / (high - low), 0), 1);
    return rate * ((1 - kept) / factor + kept);
  });
}

/** Rates and magnitude of a scaling by name: {rates, magnitude}. */
export function scaledRates(name, {width, theta, factor, trained}) {
  const rates = {
    none: () => plainRates(width, theta),
    linear: () => linearRates(width, theta, factor),
    ntk: () => ntkRates(width, theta, factor),
    yarn: () => yarnRates(width, theta, factor, trained),
    llama3: () => llama3Rates(width, theta, factor, trained),
  }[name]();
  return {rates, magnitude: name === "yarn" ? yarnMagnitude(factor) : 1};
}

/** Mean over pairs of cos(w_m offset): the score of equal queries and keys at this offset, 1 at offset 0. */
export function meanCosine(rates, offset) {
  return rates.reduce((sum, rate) => sum + Math.cos(rate * offset), 0) / rates.length;
}
