/** Weights of the models: 8 bits a number and one float32 scale a row, deflated, in base64. */

/** Inflate base64 text to bytes. */
export async function inflate(text) {
  const raw = atob(text),
    packed = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) packed[i] = raw.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** A model from its entry in the list of models and the bytes of all: {name, shape ..., tensors: {name: {rows, columns, data}}}.
 * A rounded number is fround(q * scale), the same bits as PyTorch's `q.float() * scale`. */
export function readModel(entry, bytes) {
  const tensors = {};
  for (const {name, rows, columns, kind, at} of entry.tensors) {
    const data = new Float64Array(rows * columns);
    // stretches of bytes lie at any address, typed arrays of four bytes do not
    const floats = (from, count) => new Float32Array(bytes.slice(from, from + 4 * count).buffer);
    if (kind === "int8") {
      const scales = floats(at, rows),
        whole = new Int8Array(bytes.buffer, bytes.byteOffset + at + 4 * rows, rows * columns);
      for (let row = 0; row < rows; row++) {
        for (let i = row * columns; i < (row + 1) * columns; i++) data[i] = Math.fround(whole[i] * scales[row]);
      }
    } else {
      data.set(floats(at, rows * columns));
    }
    tensors[name] = {rows, columns, data};
  }
  return {...entry, tensors};
}
