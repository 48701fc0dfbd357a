# Exit code 0: all limits are kept; 1: one is not; 2: the model cannot be audited.
sweeps audit --model "model:${1:-logistic}" --data patients.csv --labels relapse --references 8 \
  --fail-above advantage=0.1 --fail-above tpr_at_fpr_0.01=0.05 \
  --junit audit.xml --report audit.html --save outputs.npz
