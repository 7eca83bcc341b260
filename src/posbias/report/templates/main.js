// Every figure of the page, then a mark that the page is complete.

const MOUNTS = {
  single: {
    profiles: (mount, data) => mountProfiles(mount, data.profiles),
    mixing: (mount, data) => mountMixing(mount, data.mixing),
    kernels: (mount, data) => mountKernels(mount, data.kernels),
    depth: (mount, data) => mountDepth(mount, data.depth),
  },
  several: {
    profiles: mountRelativeProfiles,
    mixing: mountRelativeMixing,
  },
};

function openForPrint() {
  const closed = [...document.querySelectorAll("details:not([open]):not(.numbers)")];
  closed.forEach((details) => {
    details.open = true;
    details.dataset.closed = "";
  });
}

function closeAfterPrint() {
  document.querySelectorAll("details[data-closed]").forEach((details) => {
    details.open = false;
    delete details.dataset.closed;
  });
}

const reportData = readData();
document.querySelectorAll(".mount").forEach((mount) => {
  MOUNTS[reportData.kind][mount.dataset.figure](mount, reportData);
});
window.addEventListener("beforeprint", openForPrint);
window.addEventListener("afterprint", closeAfterPrint);
document.documentElement.dataset.ready = "true";
