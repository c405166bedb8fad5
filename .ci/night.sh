# `.ci/run night [MINUTES] [--again] [--only=NAME,NAME]`: the long versions, part by part. Read by .ci/run.
#
# A part that passes leaves a record in target/night: its commit, figures, seconds and date. The next run of the same commit skips it, so that
# an interrupted night goes on; --again forgets. The records become rows of the table in docs/night.md.
#
# MINUTES (480) are what drawing takes: half for the fuzz targets, one on each core, a quarter for random cases on emulated devices.
# The rest has no length to choose: every input of every scalar function, all mutants, NEON, races.

# The parts, a line each, and what runs them: part_KIND NAME, whose last line of output is its figures.
night_parts() {
    local name
    # Asked for a function that is none, it lists those that there are.
    for name in $("$target/release/examples/exhaustive" none | sed 's/.*there are: //; s/ all$//'); do echo "scalar $name"; done
    for name in $(cargo fuzz list); do echo "fuzz $name"; done
    echo "emulated devices"
    echo "checked tests"
    for name in capi neon races learns; do echo "stage $name"; done
    echo "mutants core"
}

part_scalar() { "$target/release/examples/exhaustive" "$1"; }
part_fuzz() { stage_fuzz "$fuzz_seconds" "$1"; }
part_emulated() { stage_emulated "$emulated_seconds" --cases 5000; }
# Every test with overflow checks and debug assertions.
part_checked() { cargo test --workspace --profile release-checked; }
part_stage() { "stage_$1"; }
part_mutants() { xtask mutants; }

# The lines of a part's output that hold its figures.
part_figures() {
    case $1 in
        scalar) tail -1 "$2" ;;
        fuzz) grep ' inputs in ' "$2" ;;
        emulated)
            awk 'NF == 6 && $2 ~ /^[0-9]+$/ && $5 == 0 { if (!least || $2 < least) least = $2; if ($2 > most) most = $2 }
                /^total/ { printf "%d to %d cases an op, %s; ", least, most, $0; least = most = 0 }' "$2" ;;
        checked) awk '/^test result: ok/ { n += $4 } END { print n " tests with overflow checks and debug assertions" }' "$2" ;;
        stage) tail -1 "$2" ;;
        mutants) grep ' changes tried: ' "$2" | sed 's/ Of those that passed.*//' ;;
    esac
}

# docs/night.md: a row a part, of its last run; rows of parts that have no record here stay.
night_table() {
    local rows
    rows=$({ grep -h '^| [a-z]* ' docs/night.md | grep -v '^| part ' || true; cat "$records"/*.done | grep '^| ' || true; } 2>/dev/null |
        awk -F'|' '{ if (!($2 in row)) order[++n] = $2; row[$2] = $0 } END { for (i = 1; i <= n; i++) print row[order[i]] }')
    {
        echo "# The last night"
        echo
        echo "Written by \`.ci/run night\`: the long versions of what \`.ci/run\` does in short. Each part has the figures of its last run,"
        echo "and the commit that it ran on."
        echo
        echo "Machine: $(uname -m), $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)."
        not_checked
        echo
        echo "| part | figures | s | commit | date |"
        echo "|---|---|---|---|---|"
        echo "$rows"
    } >"$scratch/night"
    mv "$scratch/night" docs/night.md
}

night_done() { [ "$(sed -n 2p "$records/$1-$2.done" 2>/dev/null)" = "$commit" ]; }

# Runs one part, unless it is done, and records its figures.
night_part() {
    local kind=$1 name=$2 log=$records/$1-$2.log begun=$SECONDS code figures
    if night_done "$kind" "$name"; then
        echo "$kind $name: done for this commit"
        return
    fi
    # A shell of its own: a part that fails does not end the night, and `set -e` holds in it.
    set +e
    (set -e; "part_$kind" "$name") >"$log" 2>&1
    code=$?
    set -e
    if [ $code -ne 0 ]; then
        echo "$kind $name: FAILED after $((SECONDS - begun)) s, see $log"
        return
    fi
    figures=$(part_figures "$kind" "$log")
    echo "$kind $name: $figures"
    printf '%s\n' "$kind $name" "$commit" \
        "| $kind $name | ${figures//|/,} | $((SECONDS - begun)) | ${commit:0:7} | $(date +%F) |" >"$records/$kind-$name.done"
}

stage_night() {
    local minutes=480 only= word kind name failed=()
    local records=$target/night commit fuzz_seconds emulated_seconds
    for word in "$@"; do
        case $word in
            --again) rm -rf "$records" ;;
            --only=*) only=,${word#--only=}, ;;
            *[!0-9]*) die "night takes minutes and --again, not '$word'" ;;
            *) minutes=$word ;;
        esac
    done
    git diff --quiet HEAD -- . ':!docs/night.md' || die "commit first: the figures of a night are those of a commit"
    commit=$(git rev-parse HEAD)
    mkdir -p "$records"
    need_cargo_fuzz
    programs
    night_parts >"$scratch/all"
    fuzz_seconds=$((minutes * 30 * $(nproc) / $(grep -c '^fuzz ' "$scratch/all")))
    while read -r kind name; do
        [ -z "$only" ] || [[ $only == *",$name,"* ]] || continue
        echo "$kind $name"
    done <"$scratch/all" >"$scratch/parts"
    for name in ${only//,/ }; do
        grep -q " $name\$" "$scratch/parts" || die "no part is called $name: expected one of $(awk '{ printf "%s ", $2 }' "$scratch/all")"
    done
    emulated_seconds=$((minutes * 15))
    while read -r kind name <&3; do
        # A fuzz target has one thread, all others use every core.
        if [ "$kind" = fuzz ]; then
            [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n || true
            night_part "$kind" "$name" &
        else
            wait
            night_part "$kind" "$name"
        fi
        night_table
    done 3<"$scratch/parts"
    wait
    night_table
    while read -r kind name; do
        night_done "$kind" "$name" || failed+=("$kind $name")
    done <"$scratch/parts"
    [ ${#failed[@]} -eq 0 ] || die "parts that failed: ${failed[*]}"
    echo "docs/night.md: $(grep -c '^| [a-z]* ' docs/night.md) parts"
}
