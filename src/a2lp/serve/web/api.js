// The server: requests, commands in order and never twice, and a socket that comes back by itself.

import { readUpdate } from "./wire.js";

/** @typedef {{ id: string, op: string, [name: string]: any }} Command */
/** @typedef {{ seq: number, id: string, [name: string]: any }} Answer */

const WAITING = "a2lp-waiting";
const PATIENCE = [250, 500, 1000, 2000, 4000];

/** What the server said about a request that it refused. */
export class Refused extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** @returns {string} also where crypto.randomUUID is missing, as in pages without TLS on another host */
const uuid = () =>
  crypto.randomUUID?.() ??
  "10000000-1000-4000-8000-100000000000".replace(/[018]/g, (c) =>
    (Number(c) ^ (crypto.getRandomValues(new Uint8Array(1))[0] & (15 >> (Number(c) / 4)))).toString(16),
  );

export class Api extends EventTarget {
  online = true;
  /** @type {Command[]} */ #waiting = [];
  /** @type {Map<string, { resolve: (answer: Answer) => void, reject: (error: Error) => void }>} */ #promises = new Map();
  #sending = false;
  #project = "";
  #tries = 0;
  /** @type {WebSocket | null} */ #socket = null;
  #timer = 0;

  /** @param {string} key */
  constructor(key) {
    super();
    this.key = key;
    window.addEventListener("online", () => this.#retry(0));
  }

  get waiting() {
    return this.#waiting.length;
  }

  /** @param {string} path @param {RequestInit} [options] @returns {Promise<Response>} */
  async #fetch(path, options) {
    const answer = await fetch(path, { credentials: "same-origin", ...options });
    if (answer.ok) return answer;
    const body = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, body.message ?? `The server answered ${answer.status}.`);
  }

  /** @param {string} path @returns {Promise<any>} */
  async json(path) {
    return (await this.#fetch(path)).json();
  }

  /** @param {string} path */
  async bytes(path) {
    return (await this.#fetch(path)).arrayBuffer();
  }

  /** @param {string} path @param {unknown} body @returns {Promise<any>} */
  async post(path, body) {
    const headers = { "Content-Type": "application/json", "X-A2LP-Key": this.key };
    return (await this.#fetch(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
  }

  /**
   * Give a command its id and send it after those before it; kept until the server has it, also over a reload.
   * @param {Record<string, any> & { op: string }} command
   * @returns {{ id: string, done: Promise<Answer> }}
   */
  command(command) {
    const whole = { id: uuid(), ...command };
    /** @type {Promise<Answer>} */
    const done = new Promise((resolve, reject) => this.#promises.set(whole.id, { resolve, reject }));
    this.#waiting.push(whole);
    this.#keep();
    this.#send();
    return { id: whole.id, done };
  }

  /** @param {string} project what is labelled: commands that an earlier page of this tab could not send belong to it alone */
  resume(project) {
    if (this.#project === project) return;
    this.#project = project;
    try {
      const kept = JSON.parse(sessionStorage.getItem(WAITING) ?? "{}");
      if (kept.project === project) this.#waiting = [...kept.commands, ...this.#waiting];
    } catch {
      // a tab without storage has nothing to resume
    }
    this.#send();
  }

  #keep() {
    try {
      sessionStorage.setItem(WAITING, JSON.stringify({ project: this.#project, commands: this.#waiting }));
    } catch {
      // without storage a reload while offline loses what was not sent: the banner says so
    }
    this.dispatchEvent(new Event("saving"));
  }

  async #send() {
    if (this.#sending) return;
    this.#sending = true;
    while (this.#waiting.length) {
      const command = this.#waiting[0];
      try {
        const answer = await this.post("/api/commands", command);
        this.#found();
        this.#settle(command, (promise) => promise.resolve(answer));
      } catch (error) {
        if (!(error instanceof Refused) || error.status >= 500 || error.status === 403) {
          this.#lost(error instanceof Refused && error.status === 403);
          break;
        }
        this.#settle(command, (promise) => promise.reject(error));
      }
    }
    this.#sending = false;
  }

  /** @param {Command} command @param {(promise: { resolve: (answer: Answer) => void, reject: (error: Error) => void }) => void} how */
  #settle(command, how) {
    this.#waiting.shift();
    this.#keep();
    const promise = this.#promises.get(command.id);
    this.#promises.delete(command.id);
    if (promise) how(promise);
  }

  #found() {
    this.#tries = 0;
    if (this.online) return;
    this.online = true;
    this.dispatchEvent(new Event("online"));
  }

  /** @param {boolean} refused the server is another one now, and does not know this page */
  #lost(refused) {
    if (this.online || refused) {
      this.online = false;
      this.dispatchEvent(new CustomEvent("offline", { detail: { refused } }));
    }
    this.#retry(PATIENCE[Math.min(this.#tries++, PATIENCE.length - 1)]);
  }

  /** @param {number} delay */
  #retry(delay) {
    window.clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => this.connect(), delay);
  }

  /** Open the socket; messages become events "message" (text) and "update" (rows). */
  connect() {
    if (this.#socket && this.#socket.readyState <= WebSocket.OPEN) {
      this.#send();
      return;
    }
    const socket = new WebSocket(`ws${location.protocol === "https:" ? "s" : ""}://${location.host}/ws?seq=${this.since()}`);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    socket.onopen = () => {
      this.online = false; // also the first time: whoever listens takes the state now
      this.#found();
      this.#send();
    };
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") this.dispatchEvent(new CustomEvent("message", { detail: JSON.parse(data) }));
      else this.dispatchEvent(new CustomEvent("update", { detail: readUpdate(data) }));
    };
    socket.onclose = async () => {
      const refused = await fetch("/api/state", { credentials: "same-origin" }).then(
        (answer) => answer.status === 403,
        () => false,
      );
      this.#lost(refused);
    };
  }

  /** The age of what the page has; the page replaces this. */
  since = () => 0;

  /** @param {number[]} rows in view, so that their thumbnails are made first */
  viewing(rows) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ type: "view", rows }));
  }
}
