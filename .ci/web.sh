# shellcheck shell=bash
# Sourced by .ci/run: the site of recipes.

# The site, written and opened in Chromium: docs/site.md.
stage_web() {
    local home=$target/web/npm
    need_packages rustc-web cargo-web rust-web-src lld-19 chromium
    # Not Debian's if another is there: its npm conflicts with other distributions of Node.
    command -v npm >/dev/null || need_packages nodejs npm
    xtask site
    [ -d "$home/node_modules/playwright-core" ] && [ -d "$home/node_modules/axe-core" ] ||
        fetching npm install --silent --no-fund --no-audit --prefix "$home" playwright-core@1.65 axe-core@4.14
    timeout 600 node web/tests/browser.mjs "$target/site" "$target/release/site" "$root" "$home" "$target/web/pictures" | tee "$scratch/browser.log"
    grep -qE '^[1-9][0-9]* passed, 0 skipped' "$scratch/browser.log" || die "the pages' test did not finish"
}
