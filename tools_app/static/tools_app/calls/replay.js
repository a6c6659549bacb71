// Replay of a call's events at their original times.

import { button, h } from "../web/playground/dom.js";

const MICROSECONDS = 1e6;
// At the highest speed, the replay of any call takes this many seconds.
const MOST_SECONDS = 3;
const SPEEDS = ["1×", "4×", "16×", "max"];

export function replay(box, list) {
  const rows = [...list.children].map((row) => ({ row, at: Number(row.dataset.offset) }));
  const { duration, waited, outcome } = box.dataset;
  const state = { end: Math.max(Number(duration), ...rows.map(({ at }) => at), 1), now: 0, speed: 1, timer: 0 };
  const view = controls(box, rows, state.end);

  const show = (now) => {
    state.now = Math.min(now, state.end);
    const isOver = state.now >= state.end;
    for (const { row, at } of rows) row.hidden = !isOver && at > state.now;
    if (state.timer) list.scrollTop = list.scrollHeight;
    view.scrubber.value = state.now;
    view.time.textContent = `${clock(state.now)} / ${clock(state.end)}`;
    const passed = rows.filter(({ at }) => isOver || at <= state.now).map(({ row }) => row);
    view.stage.textContent = isOver ? `Ended: ${outcome}` : state.now < Number(waited) ? "Queued" : "Running";
    const percent = passed.map((row) => row.dataset.percent).filter(Boolean).at(-1);
    view.bar.hidden = percent === undefined;
    view.bar.value = percent ?? 0;
  };

  const stop = () => {
    cancelAnimationFrame(state.timer);
    state.timer = 0;
    view.play.textContent = "Play";
  };

  const play = () => {
    if (state.now >= state.end) show(0);
    view.play.textContent = "Pause";
    let before = performance.now();
    const step = (moment) => {
      // A frame's time may be before the click that requested it.
      show(state.now + Math.max(0, moment - before) * 1000 * state.speed);
      before = moment;
      if (state.now >= state.end) stop();
      else state.timer = requestAnimationFrame(step);
    };
    state.timer = requestAnimationFrame(step);
  };

  view.play.addEventListener("click", () => (state.timer ? stop() : play()));
  view.speed.addEventListener("change", () => {
    const fastest = Math.max(16, state.end / MICROSECONDS / MOST_SECONDS);
    state.speed = view.speed.value === "max" ? fastest : parseInt(view.speed.value, 10);
  });
  view.scrubber.addEventListener("input", () => {
    stop();
    show(Number(view.scrubber.value));
  });
  show(state.end);
}

function controls(box, rows, end) {
  const play = button("Play", null, "pg-primary");
  const speed = h("select", { class: "pg-input call-speed", "aria-label": "Speed" },
    SPEEDS.map((name) => h("option", { value: name }, name)));
  const scrubber = h("input", {
    type: "range", class: "call-scrubber", min: "0", max: String(end), step: "any", "aria-label": "Time since the start",
  });
  const marks = h("div", { class: "call-marks", "aria-hidden": "true" }, rows.map(({ row, at }) => {
    const mark = h("span", { "data-is": row.querySelector('[data-slot="kind"]').dataset.is });
    mark.style.left = `${(100 * at) / end}%`;
    return mark;
  }));
  const time = h("span", { class: "pg-mono call-clock" });
  const stage = h("strong", { class: "call-stage" });
  const bar = h("progress", { max: 100, "aria-label": "Progress", hidden: true });
  box.classList.add("call-replay");
  box.append(play, speed, h("div", { class: "call-track" }, scrubber, marks), time, stage, bar);
  return { play, speed, scrubber, time, stage, bar };
}

function clock(microseconds) {
  const seconds = microseconds / MICROSECONDS;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
}
