// Sends the browser's time zone to the server, so that the next page shows times in it.
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) {
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `mcphub_zone=${zone}; Path=/admin/; Max-Age=31536000; SameSite=Lax${secure}`;
  }
})();
