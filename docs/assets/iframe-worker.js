/* Browsers refuse web workers on pages opened from disk. There the search runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.url = String(url);
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.setAttribute("aria-hidden", "true");
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      inner.parent.addEventListener("message", (event) => {
        if (event.source !== inner) return;
        const copy = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(copy);
        if (this.onmessage) this.onmessage(copy);
      });
      const page = this.frame.contentDocument;
      page.open();
      page.write(
        "<script>var postMessage = (data) => parent.postMessage(data, '*');" +
          "var importScripts = (...urls) => urls.reduce((done, url) => done.then(() => " +
          "new Promise((loaded) => { var s = document.createElement('script'); s.src = url; " +
          "s.onload = loaded; document.body.appendChild(s); })), Promise.resolve());<\/script>" +
          '<body><script src="' + this.url + '"><\/script></body>'
      );
      page.close();
      this.ready = new Promise((resolve) => inner.addEventListener("load", resolve));
    }

    postMessage(data) {
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
      );
    }

    terminate() {
      this.frame.remove();
    }
  };
}
