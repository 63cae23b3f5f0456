// Brings a live page up to date, unless somebody is using it.
"use strict";
const main = document.querySelector("main[data-live]");
if (main) {
	let failed = 0;
	const refresh = async () => {
		const busy = document.hidden || main.contains(document.activeElement) || String(getSelection()) !== "";
		if (!busy) {
			try {
				const answer = await fetch(location.href, {credentials: "same-origin"});
				const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
				if (answer.ok && next && !main.contains(document.activeElement)) {
					main.replaceChildren(...next.childNodes);
				}
				failed = 0;
			} catch {
				failed++;
			}
		}
		setTimeout(refresh, 2000 * Math.min(1 + failed, 15));
	};
	setTimeout(refresh, 2000);
}
// A checkbox that chooses all of its list.
for (const all of document.querySelectorAll("input[data-all]")) {
	all.parentElement.hidden = false;
	all.addEventListener("change", () => document.getElementsByName(all.dataset.all).forEach(one => { one.checked = all.checked; }));
}
