# Runs all models of this kit with DxDispatch, on the first GPU and on WARP, and leaves the results in results\ADAPTER.
# The first model whose dispatch fails ends a run of DxDispatch; such a model's dispatches then run one by one.
param(
    [string] $DxDispatch = 'dxdispatch.exe',
    [string[]] $Adapter = @('', 'Microsoft Basic Render Driver')  # parts of names; an empty one takes the first GPU
)
$kit = $PSScriptRoot
if (-not (Get-Command $DxDispatch -ErrorAction SilentlyContinue)) {
    Write-Host "error: $DxDispatch was not found; name it with -DxDispatch C:\folder\dxdispatch.exe"
    exit 2
}
$models = @(Get-ChildItem (Join-Path $kit 'models') -Filter '*.json' | Sort-Object Name)

function Invoke-Model([string] $model, [string] $name, [string] $output) {
    $options = @($model, '--input_path', $kit, '--output_path', $output)
    if ($name) { $options += @('--adapter', $name) }
    & $DxDispatch @options 2>&1 | ForEach-Object { "$_" }
}

# The lines of a model that belong to this dispatch, or to none.
function Select-Dispatch([string[]] $lines, [string] $number) {
    $lines | Where-Object { $_ -notmatch '"\d{3}["\.]' -or $_ -match ('"' + $number + '["\.]') }
}

foreach ($name in $Adapter) {
    $trial = Join-Path $kit 'results\trial'
    $lines = Invoke-Model $models[0].FullName $name $trial
    Remove-Item $trial -Recurse -Force -ErrorAction SilentlyContinue
    $running = $lines | Select-String "Running on '(.*)'" | Select-Object -First 1
    if (-not $running) {
        Write-Host "no adapter '$name': $lines"
        continue
    }
    $found = $running.Matches[0].Groups[1].Value
    $output = Join-Path $kit ('results\' + ($found -replace '[^A-Za-z0-9]+', '_').Trim('_'))
    Remove-Item $output -Recurse -Force -ErrorAction SilentlyContinue
    New-Item $output -ItemType Directory -Force | Out-Null
    $log = Join-Path $output 'log.txt'
    $count = 0
    foreach ($model in $models) {
        $count += 1
        Write-Host "$found`: $($model.BaseName), $count of $($models.Count)"
        Invoke-Model $model.FullName $name $output | Add-Content $log
        $lines = @(Get-Content $model.FullName)
        $left = @{}
        foreach ($line in $lines) {
            if ($line -match '"targetPath": "([^"]+/(\d{3})\.[^"]+)"' -and -not (Test-Path (Join-Path $output $Matches[1]))) {
                $left[$Matches[2]] = $true
            }
        }
        foreach ($number in ($left.Keys | Sort-Object)) {
            $part = Join-Path $output 'part.json'
            Select-Dispatch $lines $number | Set-Content $part -Encoding Ascii
            Invoke-Model $part $name $output | Add-Content $log
            Remove-Item $part
        }
    }
}
