// The sidebar lists every operator: it opens where the current page stands in it.
document.addEventListener("DOMContentLoaded", () => {
  const sidebar = document.querySelector(".sidebar-scroll");
  const here = sidebar?.querySelector(".current-page > a");
  if (here) {
    sidebar.scrollTop += here.getBoundingClientRect().top - sidebar.getBoundingClientRect().top - sidebar.clientHeight / 2;
  }
});
