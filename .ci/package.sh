# Stage of .ci/run: the crates as crates.io would get them.

# Packages every crate that is to be published, then builds a program outside the workspace against the unpacked
# packages, without and with a GPU backend, and runs the README's example in it.
stage_package() {
    local out=$scratch/packages user=$scratch/user crates crate file bytes arguments=()
    mapfile -t crates < <(cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
print(*(package["name"] for package in json.load(sys.stdin)["packages"] if package["publish"] != []), sep="\n")')
    for crate in "${crates[@]}"; do arguments+=(-p "$crate"); done
    # What an earlier run built has the paths of its own scratch folder.
    rm -rf "$target/package" "$target/package-user"
    cargo package --quiet --no-verify --allow-dirty --target-dir "$target" "${arguments[@]}"

    mkdir -p "$out" "$user/src"
    {
        printf '[package]\nname = "user"\nversion = "0.0.0"\nedition = "2024"\n\n[workspace]\n\n[features]\ncuda = ["lockstep-rl/cuda"]\n\n'
        printf '[dependencies]\nlockstep-rl = { version = "*", default-features = false }\n\n'
        # Fast to build; nothing is measured.
        printf '[profile.dev]\nopt-level = 0\ndebug = false\n\n[patch.crates-io]\n'
    } >"$user/Cargo.toml"
    for crate in "${crates[@]}"; do
        file=$(ls "$target/package/$crate"-[0-9]*.crate)
        bytes=$(wc -c <"$file")
        echo "$(basename "$file"): $bytes bytes, $(tar -tzf "$file" | wc -l) files"
        [ "$bytes" -le 10000000 ] || die "$crate is larger than crates.io takes"
        tar -xzf "$file" -C "$out"
        printf '%s = { path = "%s" }\n' "$crate" "$out/$(basename "$file" .crate)" >>"$user/Cargo.toml"
    done

    {
        echo 'fn main() -> Result<(), lockstep::Error> {'
        awk '/^```rust/ { on = 1; next } /^```/ { on = 0 } on' README.md | sed '/^# Ok::/d'
        echo '    println!("coef {:?}, loss {:?}", loss.coef, loss.loss);'
        echo '    match Device::open("cuda") {'
        echo '        Ok(device) => println!("cuda: {}", device.describe()),'
        echo '        Err(error) => println!("cuda: {error}"),'
        echo '    }'
        echo '    Ok(())'
        echo '}'
    } >"$user/src/main.rs"
    local features line said=() binary=$target/package-user/debug/user off='the feature `cuda` of lockstep-rl'
    for features in "" cuda; do
        CARGO_TARGET_DIR=$target/package-user cargo run --quiet --manifest-path "$user/Cargo.toml" --features "$features" >"$scratch/user.log"
        sed "s/^/features \"$features\": /" "$scratch/user.log"
        line=$(grep '^coef ' "$scratch/user.log")
        said+=("$line")
        echo "features \"$features\": $(wc -c <"$binary") bytes"
        # The kernels and the message that the feature is off are in exactly one of the two programs.
        if [ -z "$features" ]; then
            grep -qF "$off" "$scratch/user.log" || die "the message does not name the feature"
            ! grep -qaF '.target sm_80' "$binary" || die "PTX in a program without a GPU backend"
        else
            ! grep -qF "$off" "$scratch/user.log" || die "the feature is on and said to be off"
            grep -qaF '.target sm_80' "$binary" || die "no PTX in a program with the CUDA backend"
        fi
    done
    [ "${said[0]}" = "${said[1]}" ] || die "the feature changes bits"
}
