"use strict";
// Entry point: the overview at /, the page of a model at /models/NAME.
const name = location.pathname.startsWith("/models/") ? decodeURIComponent(location.pathname.slice(8)) : null;

function showError(error) {
  if (error.status === 403) requestKey(`The key was refused: ${error.message}`);
  else main.replaceChildren(el("h1", "Error"), el("p", error.message));
}

// If the service uses keys, a plain link to the metrics would be refused, so they are fetched with the key.
document.getElementById("metrics").onclick = async (event) => {
  if (!sessionStorage.getItem("key")) return;
  event.preventDefault();
  try {
    const text = await fetchData("/metrics", "text");
    main.replaceChildren(el("h1", "Metrics"), el("pre", text, "card"));
  } catch (error) {
    main.replaceChildren(el("h1", "Metrics"), el("p", error.message));
  }
};

(name === null ? new Overview() : new ModelPage(name)).open().catch(showError);
