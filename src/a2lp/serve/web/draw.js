// Points on a canvas with WebGL 2, in pieces that leave time for everything else.

import { PlainPoints, pointSize, sample } from "./plain.js";
import { DECIDED, FLAG, NONE } from "./wire.js";

const MOVING = 200_000; // points while the map is moved
const PIECE = 16_000; // points that are drawn at once, to begin with

const VERTEX = `#version 300 es
in vec2 place; in uint cls; in uint conf; in uint flags; in uint mark;
uniform vec4 window; uniform float size; uniform int only; uniform sampler2D palette;
out vec4 colour; flat out int shape; flat out float ring;
void main() {
  vec4 look = texelFetch(palette, ivec2(cls & 255u, cls >> 8), 0);
  bool yours = (flags & 1u) > 0u;
  bool selected = (mark & 1u) > 0u;
  bool faint = (mark & 2u) > 0u || (only >= 0 && int(cls) != only);
  float sure = (flags & ${DECIDED}u) > 0u ? 1.0 : float(conf) / 255.0;
  colour = vec4(look.rgb, (cls == ${NONE}u ? 0.6 : 0.3 + 0.7 * sure) * (faint && !selected ? 0.14 : 1.0));
  shape = int(look.a * 255.0 + 0.5);
  ring = selected ? 2.0 : yours ? 1.0 : 0.0;
  gl_PointSize = size * (yours || selected ? 1.7 : shape == 3 ? 0.8 : 1.0);
  gl_Position = vec4(place * window.xy + window.zw, 0.0, 1.0);
}`;

const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 colour; flat in int shape; flat in float ring;
uniform vec3 ink; uniform vec3 accent;
out vec4 pixel;
void main() {
  vec2 p = gl_PointCoord * 2.0 - 1.0;
  float d = shape == 1 ? max(abs(p.x), abs(p.y)) * 1.12
    : shape == 2 ? max(p.y * 1.1, 2.0 * abs(p.x) - p.y) : length(p);
  if (d > 1.0) discard;
  vec3 rgb = ring > 0.5 && d > 0.68 ? (ring > 1.5 ? accent : ink) : colour.rgb;
  float a = ring > 0.5 ? max(colour.a, 0.9) : colour.a * (1.0 - smoothstep(0.8, 1.0, d));
  pixel = vec4(rgb * a, a);
}`;

/** @typedef {{ palette: Uint8Array<ArrayBuffer>, ink: number[], accent: number[] }} Look colours from 0 to 1 */
/** @typedef {{ scaleX: number, scaleY: number, left: number, top: number, width: number, height: number, ratio: number }} Frame in CSS pixels */

class GlPoints {
  #hidden;
  #colours;
  #size = [0, 0];
  #few = false;
  #drawn = 0;
  #piece = PIECE;
  #last = 0;
  #since = 0;
  /** @type {WebGLSync | null} */ #fence = null;

  /**
   * @param {WebGL2RenderingContext} gl
   * @param {Uint16Array} x
   * @param {Uint16Array} y
   */
  constructor(gl, x, y) {
    /** @type {WebGL2RenderingContext} */
    this.gl = gl;
    this.n = x.length;
    this.#hidden = gl.createFramebuffer();
    this.#colours = gl.createRenderbuffer();
    this.program = this.#compile();
    gl.useProgram(this.program);
    const places = new Uint16Array(2 * this.n);
    for (let i = 0; i < this.n; i++) [places[2 * i], places[2 * i + 1]] = [x[i], y[i]];
    this.#buffer("place", places, gl.STATIC_DRAW);
    gl.vertexAttribPointer(gl.getAttribLocation(this.program, "place"), 2, gl.UNSIGNED_SHORT, true, 0, 0);
    this.buffers = {
      cls: this.#integers("cls", new Uint16Array(this.n), gl.UNSIGNED_SHORT),
      conf: this.#integers("conf", new Uint8Array(this.n), gl.UNSIGNED_BYTE),
      flags: this.#integers("flags", new Uint8Array(this.n), gl.UNSIGNED_BYTE),
      mark: this.#integers("mark", new Uint8Array(this.n), gl.UNSIGNED_BYTE),
    };
    this.upper = gl.createBuffer();
    this.upperCount = 0;
    this.few = gl.createBuffer();
    if (this.n > MOVING) {
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.few);
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, sample(this.n, MOVING), gl.STATIC_DRAW);
    }
    gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  #compile() {
    const { gl } = this;
    const program = gl.createProgram();
    for (const [kind, text] of /** @type {[number, string][]} */ ([
      [gl.VERTEX_SHADER, VERTEX],
      [gl.FRAGMENT_SHADER, FRAGMENT],
    ])) {
      const shader = /** @type {WebGLShader} */ (gl.createShader(kind));
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader) ?? "shader");
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    return program;
  }

  /** @param {string} name @param {AllowSharedBufferSource} data @param {number} usage */
  #buffer(name, data, usage) {
    const { gl } = this;
    const buffer = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, data, usage);
    gl.enableVertexAttribArray(gl.getAttribLocation(this.program, name));
    return buffer;
  }

  /** @param {string} name @param {AllowSharedBufferSource} data @param {number} type */
  #integers(name, data, type) {
    const { gl } = this;
    const buffer = this.#buffer(name, data, gl.DYNAMIC_DRAW);
    gl.vertexAttribIPointer(gl.getAttribLocation(this.program, name), 1, type, 0, 0);
    return buffer;
  }

  /** @param {import("./wire.js").Rows} rows @param {Uint8Array} marks */
  rows(rows, marks) {
    const { gl } = this;
    for (const [name, data] of /** @type {[keyof GlPoints["buffers"], Uint8Array][]} */ (
      Object.entries({ cls: rows.cls, conf: rows.conf, flags: rows.flags, mark: marks })
    )) {
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
      gl.bufferSubData(gl.ARRAY_BUFFER, 0, data);
    }
    const upper = [];
    for (let i = 0; i < this.n; i++) if (rows.flags[i] & FLAG.YOURS || marks[i] & 1) upper.push(i);
    this.upperCount = upper.length;
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.upper);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, Uint32Array.from(upper), gl.DYNAMIC_DRAW);
  }

  /** @param {Look} look */
  look({ palette, ink, accent }) {
    const { gl, program } = this;
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, 256, 256, 0, gl.RGBA, gl.UNSIGNED_BYTE, palette);
    gl.uniform3fv(gl.getUniformLocation(program, "ink"), ink);
    gl.uniform3fv(gl.getUniformLocation(program, "accent"), accent);
  }

  /**
   * Begin a picture; `more` draws it. Where there is no graphics card, 100,000 points take a tenth of a second, and
   * everything else on the page waits for what is shown: so the picture is drawn in pieces, out of sight.
   * @param {Frame} frame
   * @param {number} only
   * @param {boolean} moving
   */
  begin(frame, only, moving) {
    const { gl, program } = this;
    const { scaleX, scaleY, left, top, width, height, ratio } = frame;
    const [wide, high] = [gl.drawingBufferWidth, gl.drawingBufferHeight];
    if (this.#size[0] !== wide || this.#size[1] !== high) {
      this.#size = [wide, high];
      gl.bindRenderbuffer(gl.RENDERBUFFER, this.#colours);
      gl.renderbufferStorage(gl.RENDERBUFFER, gl.RGBA8, wide, high);
      gl.bindFramebuffer(gl.FRAMEBUFFER, this.#hidden);
      gl.framebufferRenderbuffer(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.RENDERBUFFER, this.#colours);
    }
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.#hidden);
    gl.viewport(0, 0, wide, high);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.uniform4f(gl.getUniformLocation(program, "window"), (2 * scaleX) / width, (-2 * scaleY) / height, (2 * left) / width - 1, 1 - (2 * top) / height);
    gl.uniform1f(gl.getUniformLocation(program, "size"), pointSize(this.n) * ratio);
    gl.uniform1i(gl.getUniformLocation(program, "only"), only);
    this.#few = moving && this.n > MOVING;
    this.#drawn = 0;
    this.#fence = null;
  }

  /**
   * Draw a piece once the one before it is done; the last call shows the picture.
   * @param {boolean} [now] all of it at once
   * @returns {boolean} whether it is shown
   */
  more(now = false) {
    const { gl } = this;
    const all = this.#few ? MOVING : this.n;
    if (this.#fence && !now) {
      if (gl.getSyncParameter(this.#fence, gl.SYNC_STATUS) !== gl.SIGNALED) return false;
      this.#adapt(performance.now() - this.#since);
    }
    if (this.#drawn >= all) {
      this.#show();
      return true;
    }
    const count = Math.min(all - this.#drawn, now ? all : this.#piece);
    if (this.#few) {
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.few);
      gl.drawElements(gl.POINTS, count, gl.UNSIGNED_INT, 4 * this.#drawn);
    } else gl.drawArrays(gl.POINTS, this.#drawn, count);
    this.#drawn += count;
    this.#last = count;
    if (count === all) {
      this.#show(); // as much as fits into a frame
      return true;
    }
    this.#fence = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    this.#since = performance.now();
    gl.flush();
    return now && this.more(true);
  }

  /** A piece should take about one frame; the rest of a picture, which may be small, says nothing. @param {number} took ms */
  #adapt(took) {
    if (took > 40) this.#piece = Math.max(PIECE / 4, this.#piece / 2);
    else if (took < 20 && this.#last === this.#piece) this.#piece = Math.min(2 * this.#piece, this.n);
  }

  #show() {
    const { gl } = this;
    if (this.upperCount) {
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.upper);
      gl.drawElements(gl.POINTS, this.upperCount, gl.UNSIGNED_INT, 0);
    }
    const [wide, high] = this.#size;
    gl.bindFramebuffer(gl.READ_FRAMEBUFFER, this.#hidden);
    gl.bindFramebuffer(gl.DRAW_FRAMEBUFFER, null);
    gl.blitFramebuffer(0, 0, wide, high, 0, 0, wide, high, gl.COLOR_BUFFER_BIT, gl.NEAREST);
  }
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Uint16Array} x
 * @param {Uint16Array} y
 * @returns {GlPoints | PlainPoints}
 */
export function pointsOn(canvas, x, y) {
  const gl = canvas.getContext("webgl2", { antialias: false, premultipliedAlpha: true });
  if (gl) return new GlPoints(gl, x, y);
  return new PlainPoints(/** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")), x, y);
}
