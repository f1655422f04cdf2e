// A list of which only the rows that can be seen are elements. Its user sets decorate(index, row), which is called
// whenever the marks on rows may have changed.

const ROW = 20; // pixels, as in page.css
const OVERSCAN = 10; // rows beyond the edges, so that scrolling shows no gap

function make(tag, classes, content, ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  if (content) element.textContent = content;
  element.append(...children);
  return element;
}

class List {
  constructor(element, role, render, choose) {
    Object.assign(this, { element, role, render, choose, count: 0, active: -1, elements: new Map(), waiting: false });
    this.space = make("div", "space");
    element.append(this.space);
    element.addEventListener("scroll", () => this.later(), { passive: true });
    new ResizeObserver(() => this.later()).observe(element);
  }
  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }
  reset(count, active) {
    this.count = count;
    this.active = active;
    this.space.style.height = `${count * ROW}px`;
    for (const row of this.elements.values()) row.remove();
    this.elements.clear();
    this.draw();
  }
  draw() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - OVERSCAN);
    const last = Math.min(this.count, Math.ceil((this.element.scrollTop + this.element.clientHeight) / ROW) + OVERSCAN);
    for (const [index, row] of this.elements) {
      if (index >= first && index < last) continue;
      row.remove();
      this.elements.delete(index);
    }
    for (let index = first; index < last; index++) {
      if (this.elements.has(index)) continue;
      const row = this.render(index);
      row.id = `${this.element.id}-${index}`;
      row.dataset.index = index;
      row.style.top = `${index * ROW}px`;
      row.setAttribute("role", this.role);
      row.setAttribute("aria-setsize", this.count);
      row.setAttribute("aria-posinset", index + 1);
      this.elements.set(index, row);
      this.element.append(row);
    }
    this.mark();
  }
  mark() {
    for (const [index, row] of this.elements) {
      row.classList.toggle("active", index === this.active);
      row.setAttribute("aria-selected", index === this.active);
      this.decorate(index, row);
    }
    if (this.elements.has(this.active)) this.element.setAttribute("aria-activedescendant", `${this.element.id}-${this.active}`);
    else this.element.removeAttribute("aria-activedescendant");
  }
  show(index, centred) {
    const top = index * ROW, height = this.element.clientHeight, at = this.element.scrollTop;
    const hidden = top < at || top + ROW > at + height;
    if (hidden) this.element.scrollTop = centred ? top - height / 2 + ROW : top < at ? top : top + ROW - height;
    this.draw();
  }
  move(key) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW) - 1);
    const steps = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -this.count, End: this.count };
    if (!(key in steps) || !this.count) return false;
    const from = this.active < 0 ? (key === "ArrowDown" ? -1 : 0) : this.active;
    this.active = Math.min(this.count - 1, Math.max(0, from + steps[key]));
    this.show(this.active, false);
    this.choose(this.active);
    return true;
  }
  rowAt(event) {
    const row = event.target.closest(".row");
    return row ? Number(row.dataset.index) : -1;
  }
}
