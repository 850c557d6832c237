/** Both ends of the worker: the page keeps one, made of its own script, so that nothing is loaded. */
import {JOBS} from "./jobs.js";

/** Answer the messages of a page: {id, job, given} by {id, share}, several times, and {id, result} or {id, error}. */
export function serve() {
  self.addEventListener("message", ({data: {id, job, given}}) => {
    try {
      self.postMessage({id, result: JOBS[job](given, (share) => self.postMessage({id, share}))});
    } catch (error) {
      self.postMessage({id, error: String(error.message ?? error)});
    }
  });
}

/** Runs jobs in a worker; where a browser allows none for a page from disk, in the page itself. */
export class Workshop {
  constructor(script) {
    this.waiting = new Map();
    this.next = 0;
    try {
      this.worker = new Worker(URL.createObjectURL(new Blob([script], {type: "text/javascript"})));
      this.worker.addEventListener("message", ({data}) => this.settle(data));
      this.worker.addEventListener("error", () => this.fallBack());
    } catch {
      this.worker = null;
    }
  }

  /** The result of a job, later; `progress` hears of the share that is done. */
  run(job, given, progress = null) {
    if (!this.worker)
      return new Promise((done) => {
        setTimeout(() => done(JOBS[job](given, progress)), 20);
      });
    const id = this.next++;
    return new Promise((done, failed) => {
      this.waiting.set(id, {done, failed, progress, job, given});
      this.worker.postMessage({id, job, given});
    });
  }

  /** End the worker; what it has not finished is never answered. */
  close() {
    this.worker?.terminate();
  }

  settle({id, share, result, error}) {
    const {done, failed, progress} = this.waiting.get(id);
    if (share !== undefined) {
      progress?.(share);
      return;
    }
    this.waiting.delete(id);
    if (error === undefined) done(result);
    else failed(new Error(error));
  }

  fallBack() {
    this.worker = null;
    for (const {done, progress, job, given} of this.waiting.values()) this.run(job, given, progress).then(done);
    this.waiting.clear();
  }
}
